"""What lists ask is answered along an index, whatever the number of rows; no list is sorted or read whole."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pymongo
import pytest

from benchmarks.runs_listing import run_row, trajectory_row
from control_tower.agent_runs.store import mongo_query, sqlite_query
from control_tower.agent_runs.store.interface import Position, Row, Sort, Table
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.sqlite import SqliteStore
from control_tower.agent_runs.store.tables import RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import All, Compare, Contains, Equals, Has, Where
from tests.agent_runs.store.conftest import Calls
from tests.support.mongod import Mongod

LIVE = Equals("deleted", None)
NEWEST = Sort("created", descending=True)
BEHIND = Position("2026-11-15T00:00:00.000000Z", "5" * 32)
METRIC = Sort("metrics", True, "audit/safety")

LISTS: dict[str, tuple[Table, Where, Sort, Position | None]] = {
    "newest": (RUNS, LIVE, NEWEST, None),
    "oldest": (RUNS, LIVE, Sort("created"), None),
    "behind": (RUNS, LIVE, NEWEST, BEHIND),
    "of a tag": (RUNS, All((LIVE, Has("tags", "rare"))), NEWEST, None),
    "of a tag, behind": (RUNS, All((LIVE, Has("tags", "rare"))), NEWEST, BEHIND),
    "of a tag and a policy": (RUNS, All((LIVE, Has("tags", "rare"), Equals("policy", "p2"))), NEWEST, None),
    "of a word": (RUNS, All((LIVE, Contains("name", "RUN 7"))), NEWEST, None),
    "of a policy": (RUNS, All((LIVE, Equals("policy", "p1"))), NEWEST, BEHIND),
    "of a user since": (
        RUNS,
        All((LIVE, Equals("creator", "u1"), Compare("created", ">", "2026"))),
        NEWEST,
        None,
    ),
    "by name": (RUNS, LIVE, Sort("name"), None),
    "by cost": (RUNS, LIVE, Sort("cost", descending=True), Position(3.0, "5" * 32)),
    "by a metric": (RUNS, LIVE, METRIC, None),
    "by a metric, behind": (RUNS, LIVE, METRIC, Position(0.5, "5" * 32)),
    "of a run": (TRAJECTORIES, Equals("run_id", "r1"), Sort("position"), None),
    "of a run, behind": (TRAJECTORIES, Equals("run_id", "r1"), Sort("position"), Position(3.0, "5")),
    "of an environment": (TRAJECTORIES, Equals("environment", "s/e1"), NEWEST, None),
    "of a task": (TRAJECTORIES, Has("main_tasks", "m1"), NEWEST, BEHIND),
    "all trajectories": (TRAJECTORIES, All(), NEWEST, BEHIND),
}


def rows() -> tuple[list[Row], list[Row]]:
    runs = [
        Row(
            f"{n * 7919 % 1000:032}",
            {
                "created": f"2026-11-{n % 28 + 1:02}T00:00:00.000000Z",
                "name": f"run {n % 50}",
                "policy": f"p{n % 10}",
                "creator": f"u{n % 4}",
                "cost": n / 10,
                "deleted": "2026-12-01" if n % 50 == 0 else None,
                "tags": ["often", "rare"] if n % 40 == 1 else ["often"],
                "metrics": {"audit/safety": n % 101 / 100, "other": n},
            },
        )
        for n in range(1000)
    ]
    trajectories = [
        Row(
            f"{n * 7919 % 1000:032}",
            {
                "run_id": f"r{n % 50}",
                "position": n // 50,
                "created": f"2026-11-{n % 28 + 1:02}T00:00:00.000000Z",
                "environment": f"s/e{n % 20}",
                "main_tasks": [f"m{n % 30}"],
            },
        )
        for n in range(1000)
    ]
    return runs, trajectories


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "runs.sqlite"
    fill(Calls(SqliteStore(path)))
    return path


@pytest.fixture(scope="module")
def database(mongod: Mongod) -> Iterator[Any]:
    name = f"t{uuid4().hex}"
    fill(Calls(MongoStore(mongod.uri(name))))
    with pymongo.MongoClient[dict[str, Any]](mongod.uri(name)) as client:
        yield client[name]


def fill(store: Calls) -> None:
    store.open()
    runs, trajectories = rows()
    store.insert(RUNS, runs)
    store.insert(TRAJECTORIES, trajectories)
    store.close()
    store.runner.close()


@pytest.mark.parametrize("name", LISTS)
def test_sqlite_walks_along_an_index(file: Path, name: str) -> None:
    table, where, sort, after = LISTS[name]
    query = sqlite_query.page(table, where, sort, after=after, skip=0, limit=50, documents=True, valued=True)

    with sqlite3.connect(file) as connection:
        plan = [str(step[3]) for step in connection.execute(f"EXPLAIN QUERY PLAN {query.text}", query.values)]

    assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN")], plan
    assert len([step for step in plan if "USING" in step]) == len(plan), plan


def test_sqlite_finds_the_ids_of_hidden_runs_without_the_others(file: Path) -> None:
    query = sqlite_query.facet(RUNS, "id", Compare("deleted", ">=", ""), 50)

    with sqlite3.connect(file) as connection:
        plan = [str(step[3]) for step in connection.execute(f"EXPLAIN QUERY PLAN {query.text}", query.values)]

    assert plan[0].startswith("SEARCH t USING COVERING INDEX"), plan


@pytest.mark.parametrize("name", LISTS)
def test_mongo_walks_along_an_index(database: Any, name: str) -> None:
    table, where, sort, after = LISTS[name]
    met, order = mongo_query.page(table, where, sort, after, valued=True)

    said = database[table.name].find(met, sort=order, limit=50).explain()

    stages = list(stages_of(said["queryPlanner"]["winningPlan"]))
    assert "IXSCAN" in stages
    assert not {"COLLSCAN", "SORT"} & {*stages}, stages
    # Deleted runs, of fifty one, are all that a list may meet and not show.
    assert said["executionStats"]["totalDocsExamined"] <= 60


def test_mongo_finds_a_part_of_a_name_in_an_index_that_holds_little_else(database: Any) -> None:
    found = mongo_query.by_part(RUNS, All((Equals("policy", "p1"), Contains("name", "RUN 7"), LIVE)))
    assert found is not None
    met, index = found

    said = database[RUNS.name].find(met, {"_id": 1}, hint=index).explain()

    assert index == "index deleted name _id"
    assert not {"FETCH", "COLLSCAN", "SORT"} & {*stages_of(said["queryPlanner"]["winningPlan"])}
    assert said["executionStats"]["nReturned"] == 20
    assert mongo_query.by_part(RUNS, Contains("name", "RUN 7")) is None


def stages_of(plan: dict[str, Any]) -> Iterator[str]:
    yield plan["stage"]
    for inner in [plan.get("inputStage"), *plan.get("inputStages", ()), plan.get("queryPlan")]:
        if inner:
            yield from stages_of(inner)


@pytest.mark.slow
def test_a_list_of_ten_times_the_runs_takes_no_more_work(tmp_path: Path) -> None:
    few, many = tmp_path / "few.sqlite", tmp_path / "many.sqlite"
    for file, runs in ((few, 500), (many, 5000)):
        store = Calls(SqliteStore(file))
        store.open()
        draw = Random(1)
        for start in range(0, runs, 500):
            store.insert(RUNS, [run_row(number, draw) for number in range(start, start + 500)])
            store.insert(TRAJECTORIES, [trajectory_row(number, draw) for number in range(start, start + 500)])
        store.close()
        store.runner.close()

    lists: dict[str, tuple[Table, Where, Sort]] = {
        "newest": (RUNS, LIVE, NEWEST),
        "of a tag": (RUNS, All((LIVE, Has("tags", "tag-1"))), NEWEST),
        "of a policy": (RUNS, All((LIVE, Equals("policy", "ct/policy-1"))), NEWEST),
        "by a metric": (RUNS, LIVE, METRIC),
        "of a run": (TRAJECTORIES, Equals("run_id", run_row(3, Random(1)).id), Sort("position")),
        "of an environment": (TRAJECTORIES, Equals("environment", "setting-1/env_1"), NEWEST),
    }
    for name, (table, where, sort) in lists.items():
        query = sqlite_query.page(
            table, where, sort, after=None, skip=0, limit=5, documents=True, valued=True
        )
        assert steps(many, query) <= 1.5 * steps(few, query), name


def steps(file: Path, query: sqlite_query.Sql) -> int:
    """How many steps SQLite's machine takes for a query."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    with sqlite3.connect(file) as connection:
        connection.set_progress_handler(count, 1)
        assert len(connection.execute(query.text, query.values).fetchall()) == 5
    return counted
