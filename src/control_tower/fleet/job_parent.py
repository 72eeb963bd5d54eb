"""The process that forks a worker's jobs, as the worker sees it: requests in, reports out."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from control_tower.fleet.attempt_files import Report, Request, Setup
from control_tower.fleet.wire import Unreadable

_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
) | {"TOKENIZERS_PARALLELISM": "false"}
"""Libraries that would start threads when they are imported; a process with threads cannot be forked."""

_LINE = 1 << 20


class JobParent:
    """One start of that process.

    Args:
        process: It.
        reader: What it says.
        writer: What it is told.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.ready: asyncio.Future[Report | None] = asyncio.get_running_loop().create_future()
        """Its first report; None when it died before."""
        self.dead = False
        self._reader = reader
        self._writer = writer
        self._began: dict[str, Callable[[int], None]] = {}
        self._ended: dict[str, asyncio.Future[int | None]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, setup: Setup, environment: Mapping[str, str], output: Path) -> JobParent:
        """Starts it.

        Args:
            setup: What it is told; only the socket carries it.
            environment: Its variables, which others can see.
            output: The file that its output is added to.
        """
        process, channel = _spawn(environment, output)
        reader, writer = await asyncio.open_connection(sock=channel, limit=_LINE)
        parent = cls(process, reader, writer)
        parent._send(setup.text())
        return parent

    def play(self, request: Request, began: Callable[[int], None]) -> asyncio.Future[int | None]:
        """Has a job played.

        Args:
            request: The job.
            began: Is told the number of its process.

        Returns:
            Its exit code, negative for a signal; None when this process died before that was known.
        """
        ended = asyncio.get_running_loop().create_future()
        if self.dead:
            ended.set_result(None)
            return ended
        self._began[request.key], self._ended[request.key] = began, ended
        self._send(request.text())
        return ended

    async def close(self) -> None:
        """Ends it, and with it all its jobs."""
        self.process.kill()
        await self._reading

    def _send(self, line: str) -> None:
        self._writer.write(line.encode() + b"\n")

    async def _read(self) -> None:
        with suppress(OSError, Unreadable, ValueError):
            while line := await self._reader.readline():
                self._heard(Report.read(line))
        # Whatever it was, nothing more is heard of its jobs.
        self.dead = True
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self._writer.close()
        for waiting in (self.ready, *self._ended.values()):
            if not waiting.done():
                waiting.set_result(None)

    def _heard(self, report: Report) -> None:
        match report.kind:
            case "ready" | "unable":
                self.ready.set_result(report)
            case "started":
                self._began.pop(report.key)(report.pid)
            case "ended":
                ended = self._ended.pop(report.key)
                if not ended.done():
                    ended.set_result(report.code)


def _spawn(environment: Mapping[str, str], output: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and our end of its standard input."""
    ours, theirs = socket.socketpair()
    with theirs, output.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "control_tower.fleet.zygote"],
            stdin=theirs.fileno(),
            stdout=log,
            stderr=log,
            env={**environment, **_ONE_THREAD},
            start_new_session=True,
        )
    return process, ours


def environment_of(secrets: Mapping[str, str], prices: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process for its children, without those that are secret.

    Args:
        secrets: By name.
        prices: Variables that say which prices count.
    """
    return {name: value for name, value in os.environ.items() if name not in secrets} | dict(prices)
