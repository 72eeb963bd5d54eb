"""The parent of a worker's jobs: imports and plans once, then forks a job whenever it is asked to.

It is started by `runner` with a socket as its standard input. It starts no thread, because a fork copies only
the thread that forks; where something else started one, jobs begin from nothing, as `run_alone` does.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from control_tower.errors import ExpectedError, on_one_line
from control_tower.fleet.attempt_files import Report, Request, Setup
from control_tower.fleet.parent_death import die_with

if TYPE_CHECKING:
    from control_tower.evals.plan import RunPlan

_FIRST_SAMPLE = (
    "inspect_ai.agent._acp.transport_live",
    "inspect_ai.agent._acp.server",
    "inspect_ai.model._providers.none",
    "inspect_ai.model._openai_responses",
    "openai.types.chat",
    "numpy.random",
    "jsonschema",
    "inspect_ai.model._providers.anthropic",
    "inspect_ai.solver._transcript",
    "inspect_ai._control.config_record",
    "inspect_ai._control.scoring",
    "fsspec.implementations.chained",
    "anyio._backends._asyncio",
    "rich.markdown",
    "encodings.cp437",
    "control_tower.evals.inspect_task",
    "control_tower.evals.only",
    "control_tower.evals.progress",
    "control_tower.fleet.run_job",
)
"""What the first sample of a process would import on its way."""


class Zygote:
    """Jobs and who asks for them.

    Args:
        channel: Where requests come from and reports go to.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._keys: dict[int, str] = {}
        """The requests by the processes of their jobs."""
        self._buffer = b""
        self._setup: Setup | None = None

    def serve(self) -> None:
        """Serves until nobody asks any more; jobs that still run end with this process."""
        began = time.monotonic()
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        lines = self._lines()
        self._setup = Setup.read(next(lines))
        try:
            plan = prepare(self._setup)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever settings raise, jobs cannot be played
            if not isinstance(error, ExpectedError):
                traceback.print_exc()
            self._report(Report(kind="unable", why=_why(error)))
            return
        forks = _threads() == 1
        gc.collect()
        gc.freeze()
        self._report(Report(kind="ready", seconds=time.monotonic() - began, forks=forks))
        while True:
            ready, _, _ = select.select([self._channel, wake], [], [])
            if wake in ready:
                with suppress(BlockingIOError):
                    wake.recv(4096)
                self._reap()
            if self._channel in ready:
                if not self._receive():
                    return
                while b"\n" in self._buffer:
                    self._start(plan, Request.read(next(lines)), forks)

    def _start(self, plan: RunPlan, request: Request, forks: bool) -> None:
        pid = self._fork(plan, request) if forks else self._spawn(request)
        self._keys[pid] = request.key
        self._report(Report(kind="started", key=request.key, pid=pid))

    def _fork(self, plan: RunPlan, request: Request) -> int:
        parent, pid = os.getpid(), os.fork()
        if pid:
            return pid
        code = 1
        try:
            die_with(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._channel.close()
            code = play(plan, request)
        except BaseException:  # noqa: BLE001 - it must not return into the parent's loop
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _spawn(self, request: Request) -> int:
        assert self._setup is not None
        ours, theirs = socket.socketpair()
        # Everybody can see what variables it begins with.
        environment = {name: os.environ[name] for name in os.environ if name not in self._setup.secrets}
        words = [sys.executable, "-m", "control_tower.fleet.zygote", "alone"]
        with ours:
            with theirs:
                process = subprocess.Popen(words, stdin=theirs.fileno(), env=environment)
            # Where it ended before it read this, its end is told like any other.
            with suppress(OSError):
                ours.sendall(f"{self._setup.text()}\n{request.text()}\n".encode())
        # Its end is waited for here, not by `subprocess`.
        process.returncode = 0
        return process.pid

    def _reap(self) -> None:
        while self._keys:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if key := self._keys.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                self._report(Report(kind="ended", key=key, pid=pid, code=code))

    def _lines(self) -> Iterator[bytes]:
        while True:
            while b"\n" not in self._buffer:
                if not self._receive():
                    sys.exit(0)
            line, _, self._buffer = self._buffer.partition(b"\n")
            yield line

    def _receive(self) -> bool:
        data = self._channel.recv(1 << 16)
        self._buffer += data
        return bool(data)

    def _report(self, report: Report) -> None:
        self._channel.sendall(report.text().encode() + b"\n")


def prepare(setup: Setup) -> RunPlan:
    """Imports what samples need and plans the run.

    Raises:
        ExpectedError: The run cannot be planned here.
    """
    os.environ.update(setup.secrets)
    os.chdir(setup.folder)
    from control_tower.evals.header import header_metadata
    from control_tower.evals.plan import RunPlan
    from control_tower.evals.run_config import RunConfig
    from control_tower.inspect_private import load_hooks_quietly, sandbox_types
    from control_tower.models.roles import make_models

    for name in _FIRST_SAMPLE:
        with suppress(ImportError):
            importlib.import_module(name)
    load_hooks_quietly()
    sandbox_types()
    plan = RunPlan(RunConfig.model_validate(setup.config), setup.command)
    plan.check_requirements()
    # Made once for what they import, and to know at once that a key is missing.
    make_models(plan.config.model_roles)
    plan.only(next(iter(plan.by_id)))
    header_metadata(plan)
    return plan


def play(plan: RunPlan, request: Request) -> int:
    """Plays a job in this process."""
    from control_tower.fleet.run_job import run_job

    return run_job(plan, request)


def run_alone(channel: socket.socket) -> int:
    """Plays a job in a process that nothing was prepared in."""
    with channel.makefile("rb") as lines:
        setup, request = Setup.read(lines.readline()), Request.read(lines.readline())
    return play(prepare(setup), request)


def _threads() -> int:
    """Threads of this process, those of libraries in C too where /proc shows them."""
    tasks = Path("/proc/self/task")
    return sum(1 for _ in tasks.iterdir()) if tasks.is_dir() else threading.active_count()


def _why(error: BaseException) -> str:
    text = str(error)
    return on_one_line(text if isinstance(error, ExpectedError) else f"{type(error).__name__}: {text}")


def main() -> int:
    """Talks over standard input, a socket; returns the exit code."""
    die_with(os.getppid())
    channel = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if sys.argv[1:] == ["alone"]:
        return run_alone(channel)
    Zygote(channel).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
