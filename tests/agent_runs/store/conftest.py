"""Both stores, each test on an empty one, called from tests that are not asynchronous."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from control_tower.agent_runs.store.interface import Column, Store, Table
from control_tower.agent_runs.store.migrations import Schema
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.sqlite import SqliteStore
from tests.support.mongod import Mongod

THINGS = Table(
    "things",
    (
        Column("name", "text"),
        Column("group", "text"),
        Column("cost", "number"),
        Column("done", "flag"),
        Column("tags", "texts"),
        Column("metrics", "numbers"),
    ),
    indexes=(("group", "name"), ("cost",)),
    unique=(("name", "group"),),
    along=("group", "name"),
    beside=("cost", "done"),
)
PLAIN = Table("plain", (Column("name", "text"), Column("cost", "number"), Column("tags", "texts")))
SCHEMA = Schema(1, (THINGS, PLAIN))


class Calls:
    """A store whose methods are called without `await`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runner = asyncio.Runner()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.store, name)
        return lambda *args, **kwargs: self.runner.run(method(*args, **kwargs))

    def together(self, *calls: Any) -> Sequence[Any]:
        async def all_of_them() -> Sequence[Any]:
            return await asyncio.gather(*calls)

        return self.runner.run(all_of_them())


class Opener:
    """Opens the same store as often as it is called, each time anew."""

    def __init__(self, make: Callable[[Schema], Store]) -> None:
        self.make = make
        self.opened: list[Calls] = []

    def later(self, schema: Schema = SCHEMA) -> Calls:
        """One that is not open yet."""
        self.opened.append(Calls(self.make(schema)))
        return self.opened[-1]

    def __call__(self, schema: Schema = SCHEMA) -> Calls:
        calls = self.later(schema)
        calls.open()
        return calls


@pytest.fixture(params=["sqlite", "mongo"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """For each kind of store."""
    if request.param == "sqlite":
        opener = Opener(lambda schema: SqliteStore(tmp_path / "store" / "runs.sqlite", schema))
    else:
        server: Mongod = request.getfixturevalue("mongod")
        uri = server.uri(f"t{uuid4().hex}")
        opener = Opener(lambda schema: MongoStore(uri, schema))
    yield opener
    for calls in opener.opened:
        calls.close()
    for calls in opener.opened:
        calls.runner.close()


@pytest.fixture
def store(opener: Opener) -> Calls:
    """One that is open and empty."""
    return opener()
