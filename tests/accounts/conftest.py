"""A store with nobody in it, and a clock that only moves when told."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import TypeVar

import pytest

from control_tower.agent_runs.store.interface import Store
from control_tower.agent_runs.store.sqlite import SqliteStore

T = TypeVar("T")

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


class House:
    """What the tests of accounts work with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOON
        self.loop = asyncio.new_event_loop()
        self.store: Store = SqliteStore(path)

    def run(self, work: Awaitable[T]) -> T:
        """Waits for work."""
        return self.loop.run_until_complete(work)

    def call(self, function: Callable[..., Awaitable[T]], *args: object, **kwargs: object) -> T:
        """Calls a function with the store and the time first."""
        return self.run(function(self.store, self.now, *args, **kwargs))


@pytest.fixture
def house(tmp_path: Path) -> Generator[House]:
    house = House(tmp_path / "runs.sqlite")
    house.run(house.store.open())
    yield house
    house.run(house.store.close())
    house.loop.close()
