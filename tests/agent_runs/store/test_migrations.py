"""Stores of an older version become today's and lose nothing; those of a newer one are refused."""

from dataclasses import replace

import pytest

from control_tower.agent_runs.store.interface import Column, Row, Table
from control_tower.agent_runs.store.migrations import Migration, Schema
from control_tower.agent_runs.store.tables import RUNS, SCHEMA, TABLES
from control_tower.agent_runs.store.where import Equals, Has
from control_tower.errors import StateError
from tests.agent_runs.store.conftest import PLAIN, THINGS, Opener

LATER_COLUMNS = ("cost", "protocol", "monitors")


def as_before(table: Table) -> Table:
    """Runs before they had some of their columns and indexes."""
    if table.name != RUNS.name:
        return table
    return replace(
        table,
        columns=tuple(column for column in table.columns if column.name not in LATER_COLUMNS),
        indexes=tuple(index for index in table.indexes if not {*index} & {*LATER_COLUMNS, "name"}),
        along=("created",),
        beside=(),
    )


BEFORE = Schema(SCHEMA.version - 1, tuple(as_before(table) for table in TABLES))


def old_run(number: int) -> Row:
    return Row(
        f"{number:032x}",
        {
            "created": f"2026-11-{number % 28 + 1:02}T00:00:00.000000Z",
            "name": f"run {number}",
            "tags": ["all", f"t{number % 3}"],
            "metrics": {"audit/safety": number / 7},
            **({"deleted": "2026-12-01T00:00:00.000000Z"} if number % 5 == 0 else {}),
        },
        {"name": f"run {number}", "big": 2**80},
        {"header": [number], "text": "\udfff"},
    )


def test_runs_of_the_schema_before_are_todays_with_nothing_lost(opener: Opener) -> None:
    rows = [old_run(number) for number in range(450)]
    before = opener(BEFORE)
    before.insert(before.store.schema.tables[0], rows)
    before.close()

    store = opener(SCHEMA)

    assert {row.id: row for row in store.find(RUNS, documents=True)} == {row.id: row for row in rows}
    assert store.check() == []
    shown = [row.id for row in rows if "deleted" not in row.columns and "t1" in row.columns["tags"]]
    assert {row.id for row in store.find(RUNS, Has("tags", "t1"), documents=True)} >= set(shown)
    counts = [("all", 360), ("t0", 120), ("t1", 120), ("t2", 120)]
    assert store.facet(RUNS, "tags", Equals("deleted", None)) == counts
    assert store.count(RUNS, Equals("cost", None)) == 450
    changed = replace(rows[0], columns={**rows[0].columns, "cost": 2, "monitors": ["m"]})
    assert store.replace(RUNS, changed)
    assert store.total(RUNS, "cost", Has("monitors", "m")) == 2


# A table that got a column and a unique one, filled from its documents in two steps.

FIRST = Schema(
    1, (replace(THINGS, columns=THINGS.columns[:1], indexes=(), unique=(), along=(), beside=()), PLAIN)
)
TODAY = Schema(
    4,
    (THINGS, PLAIN, Table("fresh", (Column("name", "text"),))),
    (
        Migration(2, {"things": lambda row: with_column(row, "cost"), "plain": lambda row: row}),
        Migration(4, {"things": lambda row: with_column(row, "tags")}),
    ),
)


def with_column(row: Row, name: str) -> Row:
    return replace(row, columns={**row.columns, name: row.document[name]})


def first_rows(count: int) -> list[Row]:
    return [
        Row(f"{n:04}", {"name": f"{n}"}, {"n": n}, {"cost": float(n), "tags": [f"{n % 2}"], "rest": "\ud800"})
        for n in range(count)
    ]


def test_new_columns_are_filled_from_documents_step_by_step(opener: Opener) -> None:
    before = opener(FIRST)
    before.insert(FIRST.tables[0], first_rows(250))
    before.insert(PLAIN, [Row("p", {"tags": ["x"]})])

    store = opener(TODAY)

    expected = [
        replace(row, columns={**row.columns, "cost": float(n), "tags": [f"{n % 2}"]}, rev=3)
        for n, row in enumerate(first_rows(250))
    ]
    assert store.find(THINGS, documents=True) == expected
    assert store.facet(THINGS, "tags") == [("0", 125), ("1", 125)]
    assert store.find(PLAIN) == [Row("p", {"tags": ["x"]})]
    assert store.insert(TODAY.tables[2], [Row("new", {"name": "n"})]) == set()
    assert store.progress().version == 4
    assert opener(TODAY).find(THINGS, documents=True) == expected


def test_a_migration_that_was_interrupted_goes_on_where_it_was(opener: Opener) -> None:
    before = opener(FIRST)
    before.insert(FIRST.tables[0], first_rows(1000))
    seen: list[str] = []

    def breaks(row: Row) -> Row:
        seen.append(row.id)
        if len(seen) == 700:
            raise KeyboardInterrupt
        return with_column(row, "cost")

    broken = replace(TODAY, migrations=(Migration(2, {"things": breaks}), TODAY.migrations[1]))
    with pytest.raises(KeyboardInterrupt):
        opener(broken)
    begun = len(seen)
    store = opener(broken)

    assert begun == 700
    assert len(seen) < 700 + 600
    assert [row.columns["cost"] for row in store.find(THINGS)] == [float(n) for n in range(1000)]
    assert store.count(THINGS, Has("tags", "1")) == 500


def test_stores_of_several_processes_may_migrate_at_once(opener: Opener) -> None:
    before = opener(FIRST)
    before.insert(FIRST.tables[0], first_rows(600))
    stores = [opener.later(TODAY) for _ in range(3)]

    for calls in stores:
        calls.runner = stores[0].runner

    stores[0].together(*(calls.store.open() for calls in stores))

    assert [row.columns["cost"] for row in stores[0].find(THINGS)] == [float(n) for n in range(600)]
    assert {row.rev for row in stores[0].find(THINGS)} == {3}


def test_a_store_of_a_newer_version_is_refused_by_name_and_left_alone(opener: Opener) -> None:
    newer = opener(TODAY)
    newer.insert(THINGS, [Row("a", {"name": "n"})])

    with pytest.raises(StateError, match=r"newer Control Tower \(schema 4, this one knows up to 1\); update"):
        opener(FIRST)
    assert newer.find(THINGS) == [Row("a", {"name": "n"})]


def test_a_row_that_another_stands_in_the_way_of_is_named(opener: Opener) -> None:
    before = opener(FIRST)
    before.insert(FIRST.tables[0], first_rows(3))

    def same(row: Row) -> Row:
        return replace(row, columns={**row.columns, "name": "same", "group": "g"})

    with pytest.raises(StateError, match="things '0001' cannot be migrated: its new values"):
        opener(replace(TODAY, migrations=(Migration(4, {"things": same}),)))
