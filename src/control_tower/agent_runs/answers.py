"""Counts over many runs, remembered for a while and never made twice at once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

_LEAST = 2.0
"""Seconds that an answer lasts at least."""
_TIMES = 20
"""How much longer an answer lasts than it took."""
_MOST = 500
_AT_ONCE = 2
"""Works at a time, so that lists find room beside them."""


@dataclass(frozen=True)
class _Kept:
    answer: Any
    written: int
    """How many writes it knows of at least."""
    began: float
    lasts: float


class Answers:
    """Answers by what was asked.

    One is given as long as it is younger than two seconds, or than twenty times what it took if that is more,
    and nothing was written since by this process; it is made anew, behind the back of whoever asks, from the
    middle of that time on.
    """

    def __init__(self, written: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        """None yet.

        Args:
            written: How many writes of this process have ended.
            clock: Seconds.
        """
        self._written = written
        self._clock = clock
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._making: dict[Hashable, asyncio.Task[_Kept]] = {}
        self._working: set[asyncio.Task[Any]] = set()

    async def of(self, asked: Hashable, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """The answer to what is asked, made by `work` if none is kept that still holds."""
        written = self._written()
        while True:
            kept = self._kept.get(asked)
            if kept is not None and kept.written >= written:
                age = self._clock() - kept.began
                if age < kept.lasts:
                    self._kept.move_to_end(asked)
                    if age > kept.lasts / 2:
                        self._make(asked, work)
                    return kept.answer
            # Others may wait for it too: it goes on when this one gives up.
            made = await asyncio.shield(self._make(asked, work))
            if made.written >= written:
                return made.answer

    async def close(self) -> None:
        """Gives up what is being made."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    def _make(self, asked: Hashable, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[_Kept]:
        if asked not in self._making:
            task = asyncio.ensure_future(self._made(asked, work))
            self._making[asked] = task
            task.add_done_callback(lambda done: self._end(asked, done))
        return self._making[asked]

    async def _made(self, asked: Hashable, work: Callable[[], Awaitable[Any]]) -> _Kept:
        while len(self._working) >= _AT_ONCE:
            await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
        own = self._making[asked]
        self._working.add(own)
        try:
            written, began = self._written(), self._clock()
            answer = await work()
        finally:
            self._working.remove(own)
        kept = _Kept(answer, written, began, max(_LEAST, _TIMES * (self._clock() - began)))
        self._kept[asked] = kept
        self._kept.move_to_end(asked)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return kept

    def _end(self, asked: Hashable, task: asyncio.Task[_Kept]) -> None:
        del self._making[asked]
        if not task.cancelled():
            task.exception()  # Nobody may have waited; whoever asks next is told.
