"""Coroutines of one process beside each other: the first that fails ends all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """What a process runs beside its main coroutine; `spawn` is that of an `Outside`."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something beside the caller, until `run` returns."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs the main coroutine and returns what it returns; the others are cancelled then.

        Raises:
            BaseException: What it raised, or the first of the others that failed.
        """
        first = asyncio.get_running_loop().create_task(main)
        bell = asyncio.get_running_loop().create_task(self._bell.wait())
        try:
            await asyncio.wait({first, bell}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done() and self._failed is not None:
                self._failed.result()
            return await first
        finally:
            left: list[asyncio.Task[Any]] = [
                task for task in (first, bell, *self._running) if not task.done()
            ]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failed is None:
            self._failed = task
            self._bell.set()
