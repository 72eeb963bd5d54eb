"""The threads that decompress and measure, few, so that no request keeps others from being answered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

STEP = 1024 * 1024
"""Bytes that a thread makes before it takes other work."""


class Pool:
    """A bounded number of threads, started when they are needed."""

    def __init__(self, threads: int | None = None) -> None:
        count = threads or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="viewer")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function returns that would block; it is waited for though nobody wants it any more."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    async def iterate(self, parts: Generator[bytes]) -> AsyncGenerator[bytes]:
        """The bytes that a generator makes, `STEP` at a time, each step as work of its own."""
        try:
            while step := await self.run(_step, parts):
                yield step
        finally:
            await self.run(parts.close)


def _step(parts: Generator[bytes]) -> bytes:
    made: list[bytes] = []
    length = 0
    for part in parts:
        made.append(part)
        length += len(part)
        if length >= STEP:
            break
    return b"".join(made)
