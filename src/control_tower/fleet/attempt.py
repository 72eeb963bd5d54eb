"""One attempt at a job, from its start to an account of its end."""

from __future__ import annotations

import asyncio
import errno
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from control_tower.errors import OperationError
from control_tower.fleet.attempt_files import AttemptFolder, Ended, Phase, Request, Sign
from control_tower.fleet.attempt_log import AttemptLog
from control_tower.fleet.documents import SampleResult, one_line
from control_tower.fleet.failures import exit_category, fingerprint, summary
from control_tower.fleet.job_parent import JobParent
from control_tower.fleet.job_processes import JobProcesses
from control_tower.fleet.outcomes import RULES, Category, outcome_of
from control_tower.fleet.plan import Job
from control_tower.fleet.ports import Clock
from control_tower.fleet.wire import Unreadable, Wire
from control_tower.fleet.worker import Finish
from control_tower.redactor import Redactor
from control_tower.sandbox.owners import remove_tree

W = TypeVar("W", bound=Wire)

_LOOK = 1.0
"""Seconds between two looks at what a job says."""

_OUTPUT = 64 << 10
"""Bytes of the end of a job's output that are kept."""

_LONGEST_SECRET = 4 << 10
"""Bytes more that are read and dropped, so that no part is kept of a secret that the beginning cuts."""

_IDLE_SHARE = 0.02
"""Share of a processor that a process uses which only waits."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ROOM = 1 << 20
"""Bytes; with less of them nothing works as it should."""

_REFUSALS = frozenset({429, 503, 529})


@dataclass(frozen=True)
class Limits:
    """How long an attempt may take, in seconds."""

    deadline: float
    idle: float
    """Without a sign of its sample and without work of a processor."""
    grace: float
    """To write its log when it is ended."""


@dataclass(frozen=True)
class Masks:
    """What takes secrets out of what an attempt leaves."""

    text: Callable[[str], str]
    """Out of what it says, and whatever looks like one."""
    log: Redactor
    """Out of its log, where nothing else may change."""


class Attempt:
    """One attempt at a job.

    Args:
        job: The job.
        number: Which attempt it is.
        scratch: The folder in which it gets its own.
        limits: How long it may take.
        clock: By which these pass.
        masks: Of its secrets.
        tell: Is told of samples as they end.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        scratch: Path,
        limits: Limits,
        clock: Clock,
        masks: Masks,
        tell: Callable[[SampleResult], None],
    ) -> None:
        self.usd: float | None = 0.0
        """USD that its tokens cost so far; None when some have no price."""
        self.refused = 0
        """How often models' services refused."""
        self.start_s: float | None = None
        """Real seconds from asking for its process to the first sign of its sample."""
        self.over = asyncio.Event()
        """Set by whoever runs it, when nothing of it runs any more."""
        self._job = job
        self._key = f"{job.id}.{number}"
        self._files = AttemptFolder(scratch / self._key)
        self._kept = scratch / f"{self._key}.eval"
        self._limits = limits
        self._clock = clock
        self._masks = masks
        self._tell = tell
        self._bell = clock.bell()
        self._began = clock.now()
        self._phase: Phase = "start"
        self._results: dict[tuple[str, int], SampleResult] = {}
        self._read_up_to: dict[Path, int] = {}
        self._processes: JobProcesses | None = None
        self._ending: Category | None = None
        self._full = False
        """Whether it was seen that there was no room."""
        self._kill_at = float("inf")
        self._asked = 0.0

    async def run(self, parent: JobParent | None) -> Finish:
        """Runs it.

        Args:
            parent: Forks the job; None when it died.
        """
        self._began = self._clock.now()
        if self._ending is not None:
            return self._finish(-signal.SIGTERM, None)
        if parent is None:
            return self._finish(None, None)
        self._processes = JobProcesses(self._files.path)
        try:
            self._files.temporary.mkdir(parents=True, mode=0o700)
            self._files.signs.touch()
            code = await self._played(parent, self._processes)
            log = await asyncio.to_thread(self._take_log)
            return self._finish(code, log)
        except OSError as error:
            return self._unusable(error)
        except OperationError as error:
            assert isinstance(error.__cause__, OSError)
            return self._unusable(error.__cause__)
        finally:
            self._processes.kill()
            self._processes.remove()
            remove_tree(self._files.path)

    def end(self, category: Category) -> None:
        """Ends it: it may write its log, and is killed when that takes too long."""
        if self._ending is None:
            self._ending = category
            self._kill_at = self._clock.now() + self._limits.grace
            if self._processes:
                self._processes.ask_to_end()
            self._bell.ring()

    def kill(self) -> None:
        """Ends it at once."""
        self.end("cancelled")
        if self._processes:
            self._processes.kill()

    def remove(self) -> None:
        """Removes the log that it left."""
        self._kept.unlink(missing_ok=True)

    async def _played(self, parent: JobParent, processes: JobProcesses) -> int | None:
        """Waits for the job's end; returns its exit code, None where that is not known."""

        def began(pid: int) -> None:
            processes.began(pid)
            if self._ending is not None:
                processes.ask_to_end()

        job = self._job
        request = Request(
            key=self._key,
            sample=job.sample,
            epoch=job.epoch,
            task=job.task,
            side=job.attack,
            folder=str(self._files.path),
            groups=processes.members,
        )
        self._asked = time.monotonic()
        ended = parent.play(request, began)
        ended.add_done_callback(lambda _: self._bell.ring())
        watch = _Watch(self._files.signs, self._clock, processes)
        while not ended.done():
            await self._bell.wait(_LOOK)
            self._read()
            with suppress(FileNotFoundError):  # its folder was removed, which shows at its end
                self._full = self._full or self._has_no_room()
            now = self._clock.now()
            if now - self._began > self._limits.deadline:
                self.end("timeout")
            elif watch.idle_for(self._limits.idle):
                self.end("hung")
            if now > self._kill_at:
                processes.kill()
        processes.ended()
        self._read()
        return ended.result()

    def _read(self) -> None:
        """Takes in what the job has said since the last time."""
        for result in self._lines(self._files.samples, SampleResult):
            self._add(result)
        for sign in self._lines(self._files.signs, Sign):
            if sign.phase:
                self._phase = sign.phase
                self.start_s = sign.at - self._asked if self.start_s is None else self.start_s
            if sign.used:
                self.usd = None if sign.usd is None or self.usd is None else self.usd + sign.usd
            self.refused += sign.refused in _REFUSALS

    def _lines(self, file: Path, kind: type[W]) -> list[W]:
        done = self._read_up_to.get(file, 0)
        try:
            with file.open("rb") as opened:
                opened.seek(done)
                whole = opened.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        found: list[W] = []
        for line in whole.split(b"\n") if whole else ():
            try:
                found.append(kind.read(line))
            except Unreadable:
                # The log has it, too.
                continue
        self._read_up_to[file] = done + len(whole) + bool(whole)
        return found

    def _add(self, result: SampleResult) -> None:
        key = (str(result.sample), result.epoch)
        if key not in self._results:
            error = result.error and one_line(self._masks.text(result.error))
            clean = {"error": error, "scores": _redacted(result.scores, self._masks.text)}
            self._results[key] = result.model_copy(update=clean)
            self._tell(self._results[key])

    def _take_log(self) -> AttemptLog | None:
        """The log out of the attempt's folder, where it stays until it is stored."""
        return AttemptLog.take(self._files.logs, self._kept, self._masks.log)

    def _finish(self, code: int | None, log: AttemptLog | None) -> Finish:
        job, seconds = self._job, self._clock.now() - self._began
        if log is not None:
            for result in log.results(job):
                self._add(result)
        samples, body = tuple(self._results.values()), log.path if log else None
        if code == 0 and log is not None and log.completes(job):
            return Finish("completed", body, samples=samples, usd=self.usd, duration_s=seconds)
        category, told, mark, wait = self._why(code, log)
        if log is not None:
            # On a full disk it stays as it is.
            with suppress(OperationError):
                log.close_as_failed(told)
        return Finish(
            outcome_of(category),
            body,
            category,
            told,
            mark,
            samples,
            self.usd,
            seconds,
            wait,
            self._output(),
        )

    def _unusable(self, error: OSError) -> Finish:
        """Its folder was taken away, or there is no room for it."""
        category: Category = self._ending or ("disk" if error.errno in _NO_ROOM else "worker_lost")
        text = one_line(f"its folder cannot be used: {error.strerror}")
        seconds = self._clock.now() - self._began
        mark = fingerprint(category, "-", None, text)
        outcome = outcome_of(category)
        return Finish(outcome, None, category, text, mark, usd=self.usd, duration_s=seconds)

    def _why(self, code: int | None, log: AttemptLog | None) -> tuple[Category, str, str, float | None]:
        """Category, summary, fingerprint and the wait that was asked for."""
        try:
            fault = Ended.read(self._files.ended.read_bytes()).fault
        except (OSError, Unreadable):
            fault = None
        out_of_memory = self._processes is not None and self._processes.out_of_memory
        if self._ending is not None:
            text = f"{_ENDINGS.get(self._ending, 'it was ended')} (while in phase {self._phase})"
            category: Category = self._ending
        elif code is None:
            category, text = "worker_lost", "the process that starts jobs died, and its jobs with it"
        elif fault is not None and not out_of_memory:
            message = self._masks.text(fault.message)
            category = self._or_disk(fault.category)
            mark = fingerprint(category, fault.kind, fault.frame, message)
            return category, summary(fault, message), mark, fault.retry_after_s
        elif code == 0 and not out_of_memory:
            category = self._or_disk("eval_internal")
            text = (
                "its log is missing or cannot be read"
                if log is None
                else f"its log {log.problem(job=self._job)}"
            )
        else:
            category = self._or_disk(exit_category(code, out_of_memory=out_of_memory))
            text = f"its process {_exit(code)} while in phase {self._phase}"
            text += ": memory ran out" if out_of_memory else ""
        return category, one_line(text), fingerprint(category, "-", None, text), None

    def _or_disk(self, category: Category) -> Category:
        """What fails where there was no room is one of the disk, whatever it looked like."""
        if RULES[category].counts != "neither" and (self._full or self._has_no_room()):
            return "disk"
        return category

    def _has_no_room(self) -> bool:
        return shutil.disk_usage(self._files.path).free < _ROOM

    def _output(self) -> bytes | None:
        try:
            with self._files.output.open("rb") as file:
                begin = max(0, file.seek(0, 2) - _OUTPUT - _LONGEST_SECRET)
                file.seek(begin)
                text = self._masks.text(file.read().decode("utf-8", "replace"))
        except OSError:
            return None
        # However much was masked, what is left of a secret that was cut stands at the beginning.
        whole = text[_LONGEST_SECRET:] if begin else text
        return whole.encode("utf-8", "replace")[-_OUTPUT:]


class _Watch:
    """Whether an attempt does anything at all.

    Args:
        signs: A file that changes when its sample does something.
        clock: By which it may be idle.
        processes: Those of the attempt.
    """

    def __init__(self, signs: Path, clock: Clock, processes: JobProcesses) -> None:
        self._signs = signs
        self._clock = clock
        self._processes = processes
        self._changed = 0
        self._since = clock.now()
        self._real = time.monotonic()
        self._cpu = 0.0

    def idle_for(self, seconds: float) -> bool:
        """Whether it did nothing for so long."""
        changed = self._signs.stat().st_mtime_ns
        if changed == self._changed and self._clock.now() - self._since <= seconds:
            return False
        cpu, real = self._processes.cpu_seconds(), time.monotonic()
        worked = cpu - self._cpu > _IDLE_SHARE * (real - self._real)
        if changed == self._changed and not worked:
            return True
        self._changed, self._since, self._real, self._cpu = changed, self._clock.now(), real, cpu
        return False


_ENDINGS: dict[Category, str] = {
    "timeout": "it took longer than an attempt may",
    "hung": "neither its sample nor a processor did anything for too long",
    "cancelled": "the fleet ended it",
    "budget": "the fleet's hard budget is spent",
    "preempted": "its machine is taken back",
}


def _exit(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended from outside by {name}"


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """JSON with its texts redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redacted(item, redact) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_redacted(item, redact) for item in cast("list[Any]", value)]
    return value
