"""The clock of this machine, which tests may let run faster."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

SPEED = "CONTROL_TOWER_FLEET_SPEED"
"""Variable: how many seconds of a fleet pass in one; 1 but in tests, which cannot wait for minutes."""


class SystemClock:
    """Real time, for code that runs under asyncio."""

    def __init__(self) -> None:
        self._speed = float(os.environ.get(SPEED) or 1)

    def now(self) -> float:
        return time.monotonic() * self._speed

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    def bell(self) -> SystemBell:
        return SystemBell(self._speed)


class SystemBell:
    """Rung and waited for in one event loop."""

    def __init__(self, speed: float = 1.0) -> None:
        self._rung = asyncio.Event()
        self._speed = speed

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds / self._speed)
        self._rung.clear()
