"""Several processes at one store, and processes that are killed while they write."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.sqlite import SqliteStore
from control_tower.agent_runs.store.where import Compare, Has
from tests.agent_runs.store.conftest import SCHEMA, THINGS, Calls
from tests.agent_runs.store.writer import row
from tests.support.mongod import Mongod, running


@pytest.fixture(params=["sqlite", "mongo"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    server: Mongod = request.getfixturevalue("mongod")
    return server.uri(f"t{uuid4().hex}")


def opened(place: str) -> Calls:
    calls = Calls(MongoStore(place, SCHEMA) if place.startswith("mongodb") else SqliteStore(place, SCHEMA))
    calls.open()
    return calls


def writer(place: str, work: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.agent_runs.store.writer", place, work]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_processes_that_write_the_same_each_row_is_written_once(place: str) -> None:
    # They make the store at the same time, too.
    racers = [writer(place, "40") for _ in range(3)]
    added = [int(process.communicate(timeout=200)[0]) for process in racers]

    assert sum(added) == 40
    store = opened(place)
    assert store.count(THINGS) == 41
    counter = store.get(THINGS, ["counter"])["counter"]
    assert (counter.columns["cost"], counter.rev) == (120, 121)
    store.close()


def test_tasks_of_one_process_race_as_processes_do(place: str) -> None:
    store = opened(place)
    store.insert(THINGS, [Row("counter", {"cost": 0})])

    added = store.together(*(store.store.insert(THINGS, [row(1)]) for _ in range(8)))
    change = Row("counter", {"cost": 1}, rev=1)
    changed = store.together(*(store.store.replace(THINGS, change) for _ in range(8)))

    assert sorted(map(len, added)) == [0, 1, 1, 1, 1, 1, 1, 1]
    assert sum(changed) == 1
    store.close()


def whole(store: Calls, acknowledged: int) -> None:
    """Every row is as it was written, in all its parts, and those that were acknowledged are there."""
    found = store.find(THINGS, documents=True)
    time.sleep(0.2)
    # A server may still be at the last batch of a client that was killed.
    while (again := store.find(THINGS, documents=True)) != found:
        found = again
        time.sleep(0.2)
    assert found == [row(int(each.id)) for each in found]
    assert {each.id for each in found} >= {f"{number:06}" for number in range(acknowledged + 1)}
    tagged = store.facet(THINGS, "tags", limit=10**6)
    assert sorted(tagged) == sorted((tag, 1) for each in found for tag in each.columns["tags"])
    assert store.facet(THINGS, "metrics") == ([(f"m{n}", len(found)) for n in range(5)] if found else [])
    assert store.count(THINGS, Has("tags", f"t{acknowledged}-0")) == 1
    assert store.check() == []


def test_a_writer_that_is_killed_leaves_rows_whole(place: str) -> None:
    for _ in range(2):
        process = writer(place, "fill")
        assert process.stdout
        said = [int(process.stdout.readline()) for _ in range(12)]
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.wait()

        store = opened(place)
        whole(store, said[-1])
        store.delete(THINGS, Compare("name", ">=", f"{20:06}"))
        store.close()


@pytest.mark.slow
def test_a_server_that_is_killed_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        process = writer(server.uri("kept"), "fill")
        assert process.stdout
        said = [int(process.stdout.readline()) for _ in range(12)]
        server.stop()
        said += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.wait()
        server.start()

        store = opened(server.uri("kept"))
        whole(store, said[-1])
        store.close()
