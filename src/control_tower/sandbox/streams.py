"""Output of commands: read with a bound, and kept from blocking when its command is over."""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.lowlevel import checkpoint

_CHUNK = 1 << 18
_LAST_READS = 16
_PAUSE = 0.05


class Tail:
    """The last `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        return b"".join(self._chunks)[-self._limit :].decode(errors="replace")


class Output:
    """One output pipe of a command."""

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        with suppress(AttributeError, OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _CHUNK)
        self._fd: int | None = fd
        self._tail = Tail(limit)

    async def follow(self) -> None:
        """Read until the end of the stream."""
        while self._fd is not None:
            if not self._read(1):
                await anyio.wait_readable(self._fd)
            await checkpoint()

    def finish(self) -> str:
        """What was written so far; a process that still writes is kept from blocking until it ends."""
        if self._fd is not None:
            self._read(_LAST_READS)
        self.hand_over(_ignore)
        return self._tail.text()

    def hand_over(self, sink: Callable[[bytes], None]) -> None:
        """Let what comes from now on go to `sink`, until the stream ends."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            keep_reading(fd, sink)

    def _read(self, times: int) -> bool:
        """Whether something was read, or the end was met."""
        for at in range(times):
            assert self._fd is not None
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return at > 0
            if not chunk:
                os.close(self._fd)
                self._fd = None
                return True
            self._tail.add(chunk)
        return True


async def feed(fd: int, content: bytes) -> None:
    """Write `content` to a pipe and close it; a reader that does not want it is fine."""
    os.set_blocking(fd, False)
    view = memoryview(content)
    try:
        while view:
            try:
                view = view[os.write(fd, view[: 1 << 20]) :]
            except BlockingIOError:
                await anyio.wait_writable(fd)
            except BrokenPipeError:
                return
    finally:
        os.close(fd)


def _ignore(chunk: bytes) -> None:
    del chunk


_MOST_KEPT = 128

_lock = threading.Lock()
_new: list[tuple[int, Callable[[bytes], None]]] = []
_wake: int | None = None


def keep_reading(fd: int, sink: Callable[[bytes], None]) -> None:
    """Read a pipe to its end in a thread of its own, slowly, and close it; `sink` gets what comes.

    Of the pipes that nobody wants to see, the oldest are closed when they become many.
    """
    global _wake
    os.set_blocking(fd, False)
    with _lock:
        _new.append((fd, sink))
        if _wake is None:
            reader, _wake = os.pipe()
            threading.Thread(target=_read_forever, args=(reader,), name="sandbox-output", daemon=True).start()
        os.write(_wake, b"x")


def _read_forever(wake: int) -> None:
    sinks: dict[int, Callable[[bytes], None]] = {}
    poller = select.poll()
    poller.register(wake, select.POLLIN)

    def drop(fd: int) -> None:
        poller.unregister(fd)
        del sinks[fd]
        os.close(fd)

    while True:
        ignored = [fd for fd, sink in sinks.items() if sink is _ignore]
        for fd in ignored[:-_MOST_KEPT]:
            drop(fd)
        for fd, _event in poller.poll():
            if fd == wake:
                os.read(wake, _CHUNK)
                with _lock:
                    fresh, _new[:] = list(_new), []
                for pipe, sink in fresh:
                    sinks[pipe] = sink
                    poller.register(pipe, select.POLLIN)
                continue
            if chunk := os.read(fd, _CHUNK):
                sinks[fd](chunk)
            else:
                drop(fd)
        time.sleep(_PAUSE)
