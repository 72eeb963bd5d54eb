"""How much one user may ask for at a time: pace, places and sizes."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from control_tower.agent_runs.errors import TooMany

T = TypeVar("T")

MIB = 1024 * 1024

LONGEST_DELAY = 2.0
"""Seconds that a request is held back before it is refused, since older clients never try again."""

MOST_KEYS = 10_000
"""Users and addresses that are remembered; of more, those not seen for longest are forgotten."""

BODIES: tuple[tuple[str, int | None], ...] = (
    (r"PUT /api/v1/uploads/[^/]+/parts/[^/]+", None),
    (r"PUT /blobs/in/.+", None),
    (r"POST /api/v1/runs", None),
    (r"POST /api/trajectories/register", 8 * MIB),
    (r".*", MIB),
)
"""The largest body in bytes by method and path; None where the endpoint takes a stream and checks it."""


@dataclass(frozen=True)
class Pace:
    """How often, in the long run and at once."""

    name: str
    rate: float
    """Requests a second."""
    burst: int


READS = Pace("reads", 50, 200)
HEAVY = Pace("heavy reads", 10, 40)
WRITES = Pace("writes", 10, 50)
STRANGERS = Pace("requests without a login", 5, 20)

ARCHIVES = ("archives of trajectories", 2, 30.0)
PARTS = ("parts of uploads", 8, 30.0)
"""What is done by a user at once: name, how many, and how many seconds others wait."""


class Limits:
    """What was asked for lately, by user or address. It is of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._places: OrderedDict[tuple[str, str], asyncio.Semaphore] = OrderedDict()

    async def keep(self, pace: Pace, key: str) -> None:
        """Holds a request back until it is within the pace.

        Raises:
            TooMany: That would take longer than `LONGEST_DELAY`.
        """
        now = self._clock()
        name = (pace.name, key)
        # The moment at which all that was asked for would be within the rate.
        due = max(self._due.get(name, now), now)
        wait = due - now - (pace.burst - 1) / pace.rate
        if wait > LONGEST_DELAY:
            raise TooMany(f"too many {pace.name}: at most {pace.rate:g} a second", wait)
        _remember(self._due, name, due + 1 / pace.rate)
        if wait > 0:
            await asyncio.sleep(wait)

    @asynccontextmanager
    async def place(self, kind: tuple[str, int, float], key: str) -> AsyncGenerator[None]:
        """One of a user's places for what takes long.

        Raises:
            TooMany: None became free in time.
        """
        name, most, longest = kind
        semaphore = self._places.get((name, key)) or asyncio.Semaphore(most)
        _remember(self._places, (name, key), semaphore)
        try:
            await asyncio.wait_for(semaphore.acquire(), longest)
        except TimeoutError:
            raise TooMany(f"too many {name}: at most {most} at once", longest) from None
        try:
            yield
        finally:
            semaphore.release()


def largest_body(method: str, path: str) -> int | None:
    """How many bytes a request may send; None where its endpoint says."""
    request = f"{method} {path}"
    return next(size for pattern, size in BODIES if re.fullmatch(pattern, request, re.DOTALL))


def _remember(kept: OrderedDict[tuple[str, str], T], key: tuple[str, str], value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MOST_KEYS:
        kept.popitem(last=False)
