"""What controller and workers share: the ports of one fleet, and how calls that fail are repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from control_tower.fleet.keys import Keys
from control_tower.fleet.ports import Clock, Queue, Store, Unreachable

T = TypeVar("T")

_LONGEST = 60.0


@dataclass(frozen=True)
class Outside:
    """The world as one process of a fleet sees it."""

    keys: Keys
    store: Store
    work: Queue
    """Offers for all workers."""
    safe: Queue
    """Offers for workers whose machines are not taken back."""
    done: Queue
    """What workers tell the controller."""
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Runs something beside the caller, until the process ends."""
    nonce: Callable[[], str]
    """A new random text."""

    async def surely(self, call: Callable[[], Awaitable[T]], tries: int | None = None) -> T:
        """Repeats a call until it answers, with growing pauses.

        Args:
            call: Safe to repeat.
            tries: How often at most; None has no end.

        Raises:
            Unreachable: It was tried so often.
        """
        pause = 1.0
        while True:
            try:
                return await call()
            except Unreachable:
                tries = tries - 1 if tries else None
                if tries == 0:
                    raise
            await self.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    async def together(self, calls: Iterable[Callable[[], Awaitable[None]]], width: int = 16) -> None:
        """Makes calls, several at once, and returns when all ended."""
        rest = list(calls)[::-1]
        missing, bell = len(rest), self.clock.bell()

        async def some() -> None:
            nonlocal missing
            while rest:
                await rest.pop()()
                missing -= 1
            bell.ring()

        for _ in range(min(width, missing)):
            self.spawn(some())
        while missing:
            await bell.wait(_LONGEST)
