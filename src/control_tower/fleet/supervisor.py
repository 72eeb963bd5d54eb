"""The process of a worker: joins its fleet, has attempts run, and ends by itself when it is needed no more.

`python -m control_tower.fleet.supervisor --root FOLDER --fleet ID --worker ID`. It says what it does on
its output, without secrets. It imports no Inspect: its attempts run in processes that do.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import psutil  # pyright: ignore[reportMissingModuleSource]

from control_tower.errors import ExpectedError, StateError
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.local_outside import local_outside
from control_tower.fleet.local_provider import worker_scratch
from control_tower.fleet.masked_output import MaskedOutput
from control_tower.fleet.messages import BootFailed
from control_tower.fleet.outside import Outside
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.plan import FleetFile, read_fleet
from control_tower.fleet.ports import Clock, Unreachable
from control_tower.fleet.runner import ProcessRunner, RunnerSpec
from control_tower.fleet.secrets_file import FileSecrets
from control_tower.fleet.system_clock import SystemClock
from control_tower.fleet.tasks import Tasks
from control_tower.fleet.worker import Finish, Place, Runner, Worker
from control_tower.redactor import Redactor
from control_tower.sandbox.owners import remove_tree

LIFETIME = 24 * 3600.0
"""Seconds after which a worker ends whatever happens."""

_LOOK = 2.0
_ROOM = 2 << 30
"""Bytes of memory that must be free for each attempt more."""
_STORING = 30.0
"""Seconds that a worker has to store what it ended, when it ends all it runs."""


class Processes(Runner, Protocol):
    """A runner with processes."""

    async def start(self) -> None:
        """Begins to prepare; attempts wait for it."""
        ...

    async def close(self) -> None:
        """Ends all processes at once."""
        ...


def main(
    arguments: Sequence[str] | None = None,
    processes: Callable[[RunnerSpec, Clock], Processes] = ProcessRunner,
) -> int:
    """Is one worker until its end.

    Args:
        arguments: Of the command line.
        processes: Makes what runs attempts.

    Returns:
        0 when it left, 1 when it could not go on.
    """
    parser = argparse.ArgumentParser(prog="control_tower.fleet.supervisor")
    for name in ("root", "fleet", "worker"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    # Also when nothing else in this process works any more.
    signal.alarm(int(LIFETIME + 600))
    place, output = LocalPlace(given.fleet, Path(given.root)), MaskedOutput()
    try:
        return asyncio.run(_work(place, given.worker, processes, output))
    except ExpectedError as error:
        output.say(f"cannot go on: {error}")
        return 1


async def _work(
    place: LocalPlace,
    worker: str,
    processes: Callable[[RunnerSpec, Clock], Processes],
    output: MaskedOutput,
) -> int:
    tasks = Tasks()
    outside, work = local_outside(place, SystemClock(), tasks.spawn)
    output.say(f"worker {worker} of fleet {place.fleet} starts")
    try:
        spec = await _prepare(place, worker, outside)
    except (ExpectedError, OSError) as error:
        failed = BootFailed(
            fleet=place.fleet, worker=worker, boot=outside.nonce(), seq=1, step="plan", detail=str(error)
        )
        await outside.surely(lambda: outside.done.send([failed.text()]), 3)
        raise
    output.mask(Redactor(spec.secrets.values()))
    try:
        supervisor = _Supervisor(place, worker, outside, spec, processes, output, work.stop_waiting)
        return await tasks.run(supervisor.run())
    finally:
        remove_tree(worker_scratch(place, worker))


async def _prepare(place: LocalPlace, worker: str, outside: Outside) -> RunnerSpec:
    """What attempts need, from the store and the secrets."""
    plan = await read_fleet(outside.store, place.fleet)
    values = await FileSecrets(place).fetch(place.fleet)
    if missing := [name for name in plan.file.secrets if name not in values]:
        raise StateError(f"fleet {place.fleet} has no secrets for its workers: {', '.join(missing)}")
    scratch = worker_scratch(place, worker)
    found = await outside.store.get(outside.keys.rates) if plan.file.pricing else None
    rates = scratch / "rates.json" if found else None
    if rates and found:
        rates.write_bytes(found.body)
    return RunnerSpec(
        file=plan.file,
        jobs=plan.jobs,
        scratch=scratch / "jobs",
        secrets=values,
        rates=rates,
    )


class _Supervisor:
    """A worker, and when it ends."""

    def __init__(
        self,
        place: LocalPlace,
        worker: str,
        outside: Outside,
        spec: RunnerSpec,
        processes: Callable[[RunnerSpec, Clock], Processes],
        output: MaskedOutput,
        hurry: Callable[[], None],
    ) -> None:
        settings = spec.file.settings
        self._place = place
        self._outside = outside
        self._file: FleetFile = spec.file
        self._output = output
        self._hurry = hurry
        self._processes = processes(spec, outside.clock)
        since = max(0.0, round(time.time() - psutil.Process().create_time(), 3))
        where = Place(worker, "local", settings.slots, settings.idle_timeout, _LOOK, since, _room)
        self.worker = Worker(where, outside, _Told(self._processes, output, self._full), random.random)
        self._bell = outside.clock.bell()
        self._asked = 0
        self._stopped: float | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        working = loop.create_task(self.worker.run())
        watching = loop.create_task(self._watch())
        self._outside.spawn(self._processes.start())
        self._output.say(f"hello, {self.worker.place.slots} slots")
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._output.say(f"ends at once: {watching.result()}")
                return 1
            working.result()
            self._output.say("bye")
            return 0
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
            await self._processes.close()

    def _terminate(self) -> None:
        self._asked += 1
        self._bell.ring()

    def _full(self) -> None:
        self._output.say("the disk is full: takes nothing more")
        self._leave("disk")

    def _leave(self, why: Literal["drain", "disk"] = "drain") -> None:
        self.worker.leave(why)
        self._hurry()

    async def _watch(self) -> str:
        """Has the worker leave when it should; returns why it must not go on at all."""
        clock, settings = self._outside.clock, self._file.settings
        born = sign = clock.now()
        file, control = self._inode(), await self._control()
        heeded, leaving = 0, False
        while True:
            await self._bell.wait(_LOOK)
            now = clock.now()
            if self._inode() != file:
                return "its fleet was removed"
            seen = await self._control()
            if self.worker.held or seen != control:
                control, sign = seen, now
            old = now - born > LIFETIME
            if not leaving and now - sign > settings.ttl:
                self._output.say(f"leaves: nothing was heard of its fleet for {settings.ttl:.0f} seconds")
                self._leave()
                leaving = True
            if self._asked > heeded or (old and self._stopped is None):
                heeded = self._asked
                self._obey(heeded >= 2 or old, now)
            if self._stopped is not None and now - self._stopped > _STORING:
                return f"what ran was not stored within {_STORING:.0f} seconds"

    def _obey(self, at_once: bool, now: float) -> None:
        if at_once:
            self._output.say(f"is asked to end: ends {len(self.worker.held)} attempts")
            self._stopped = self._stopped or now
            self._leave()
            self.worker.stop("preempted")
        else:
            self._output.say(f"is asked to leave: {len(self.worker.held)} attempts may finish")
            self._leave()

    def _inode(self) -> int | None:
        """Of what makes a fleet real: another means that it was removed and planned anew."""
        try:
            return (self._place.root / self._outside.keys.fleet_file).stat().st_ino
        except FileNotFoundError:
            return None

    async def _control(self) -> str | None:
        try:
            head = await self._outside.store.head(self._outside.keys.control)
        except Unreachable:
            return None
        return head and head.etag


def _room() -> int:
    return psutil.virtual_memory().available // _ROOM


class _Told:
    """A runner of which is told what it runs."""

    def __init__(self, processes: Processes, output: MaskedOutput, full: Callable[[], None]) -> None:
        self._processes = processes
        self._output = output
        self._full = full
        self.cancel = processes.cancel
        self.forget = processes.forget
        self.spent = processes.spent
        self.backoff = processes.backoff

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        self._output.say(f"runs {job}.{attempt}")
        finish = await self._processes.run(job, attempt, tell)
        why = f", {finish.category}: {finish.error_summary or 'no message'}" if finish.category else ""
        self._output.say(f"{job}.{attempt} {finish.outcome} after {finish.duration_s:.1f} s{why}")
        if finish.category == "disk":
            self._full()
        return finish


if __name__ == "__main__":
    sys.exit(main())
