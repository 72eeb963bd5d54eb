"""A process that writes to a store until it is done or killed: `python -m ... KIND WHERE SCHEMA-WORK`."""

import asyncio
import json
import sys

from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.sqlite import SqliteStore
from tests.agent_runs.store.conftest import SCHEMA, THINGS


def row(number: int) -> Row:
    """A row whose every part says which it is."""
    tags = [f"t{number}-{n}" for n in range(5)]
    metrics = {f"m{n}": float(number) for n in range(5)}
    columns = {"name": f"{number:06}", "tags": tags, "metrics": metrics}
    return Row(f"{number:06}", columns, {"n": number}, {"text": f"{number}" * 1000})


async def race(store: Store, times: int) -> None:
    """Adds rows that others add too, and counts in a row that others count in too."""
    await store.insert(THINGS, [Row("counter", {"cost": 0})])
    added = 0
    for number in range(times):
        added += 1 - len(await store.insert(THINGS, [row(number)]))
    for _ in range(times):
        while True:
            (found,) = (await store.get(THINGS, ["counter"])).values()
            new = Row("counter", {"cost": float(str(found.columns["cost"])) + 1}, rev=found.rev)
            if await store.replace(THINGS, new):
                break
    print(json.dumps(added), flush=True)


async def fill(store: Store) -> None:
    """Adds rows in batches for ever, saying which are there."""
    for start in range(0, 10**6, 4):
        await store.insert(THINGS, [row(number) for number in range(start, start + 4)])
        print(start + 3, flush=True)


async def main(place: str, work: str) -> None:
    # Who fills may find that the server was killed.
    wait = 3 if work == "fill" else 60
    store = (
        MongoStore(place, SCHEMA, wait=wait) if place.startswith("mongodb") else SqliteStore(place, SCHEMA)
    )
    await store.open()
    await (fill(store) if work == "fill" else race(store, int(work)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
