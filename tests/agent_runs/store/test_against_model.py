"""Both stores find, count and page as plain Python does over the same rows, whatever is asked."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_tower.agent_runs.store.interface import Row, Sort
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.rows import position
from control_tower.agent_runs.store.sqlite import SqliteStore
from control_tower.agent_runs.store.where import All, Compare, Contains, Equals, Has, Not, OneOf, Where
from control_tower.agent_runs.store.where import Any as AnyOf
from tests.agent_runs.store import model
from tests.agent_runs.store.conftest import SCHEMA, THINGS, Calls
from tests.support.mongod import Mongod

# Few values, so that rows tie and conditions meet; odd ones, so that stores may differ.
TEXTS = st.sampled_from(["", "a", "A", "aB", "b", "ä", "$a", "a.b", "🥞", "\uffff", "%", "\\"])
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 2, -1.5, 0.1 + 0.2, 0.3, 1e300, -1e300, 5e-324, 2**53])
KEYS = st.sampled_from(["m", "m.n", "$m", "", "M"])
SIGNS: st.SearchStrategy[Any] = st.sampled_from(["<", "<=", ">", ">="])

COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "group": st.none() | TEXTS,
        "cost": st.none() | NUMBERS,
        "done": st.none() | st.booleans(),
        "tags": st.lists(TEXTS, max_size=3, unique=True),
        "metrics": st.dictionaries(KEYS, NUMBERS, max_size=3),
    },
)
IDS = st.text(st.sampled_from("aAbä🥞.$"), min_size=1, max_size=3)
ROWS = st.dictionaries(IDS, COLUMNS, max_size=16)

LEAVES: st.SearchStrategy[Where] = st.one_of(
    st.builds(Equals, st.sampled_from(["group", "id"]), st.none() | TEXTS),
    st.builds(Equals, st.just("cost"), st.none() | NUMBERS),
    st.builds(Equals, st.just("done"), st.none() | st.booleans()),
    st.builds(OneOf, st.just("group"), st.lists(TEXTS, max_size=3).map(tuple)),
    st.builds(OneOf, st.just("cost"), st.lists(NUMBERS, max_size=3).map(tuple)),
    st.builds(Has, st.just("tags"), TEXTS),
    st.builds(Compare, st.sampled_from(["group", "id"]), SIGNS, TEXTS),
    st.builds(Compare, st.just("cost"), SIGNS, NUMBERS),
    st.builds(Compare, st.just("metrics"), SIGNS, NUMBERS, KEYS),
    st.builds(Contains, st.sampled_from(["group", "tags", "id"]), TEXTS),
)
WHERES: st.SearchStrategy[Where] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)
SORTS = st.one_of(
    st.none(),
    st.builds(Sort, st.sampled_from([None, "group", "cost", "done"]), st.booleans()),
    st.builds(Sort, st.just("metrics"), st.booleans(), KEYS),
)


@pytest.fixture(scope="module")
def both(mongod: Mongod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Calls]]:
    file: Path = tmp_path_factory.mktemp("rows") / "rows.sqlite"
    stores = [Calls(SqliteStore(file, SCHEMA)), Calls(MongoStore(mongod.uri(f"t{uuid4().hex}"), SCHEMA))]
    for store in stores:
        store.open()
    yield stores
    for store in stores:
        store.close()
        store.runner.close()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    columns=ROWS,
    wheres=st.lists(WHERES, min_size=1, max_size=6),
    sorts=st.lists(SORTS, min_size=1, max_size=3),
    skip=st.integers(0, 6),
    limit=st.none() | st.integers(0, 6),
    size=st.integers(1, 4),
)
def test_rows_are_found_as_a_plain_reading_of_the_conditions_says(
    both: list[Calls],
    columns: dict[str, dict[str, Any]],
    wheres: list[Where],
    sorts: list[Sort | None],
    skip: int,
    limit: int | None,
    size: int,
) -> None:
    rows = [Row(identity, values, {"id": identity}) for identity, values in columns.items()]
    kept = {row.id: model.kept(row) for row in rows}
    for store in both:
        store.delete(THINGS, All())
        assert store.insert(THINGS, rows) == set()
        assert {row.id: row for row in store.find(THINGS)} == kept
        for where in wheres:
            chosen = [row for row in rows if model.meets(row, where)]
            assert store.count(THINGS, where) == len(chosen), where
            for column in ("group", "done", "tags", "metrics", "cost"):
                assert store.facet(THINGS, column, where, limit=99) == model.facet(rows, column, where)
            costs = [float(row.columns.get("cost") or 0) for row in chosen]  # pyright: ignore
            # The stores add in another order, so that small numbers beside large ones may be lost.
            about = pytest.approx(math.fsum(costs), abs=1e-12 * sum(map(abs, costs)))
            assert store.total(THINGS, "cost", where) == about
            for sort in sorts:
                found = store.find(THINGS, where, sort=sort, skip=skip, limit=limit)
                expected = model.page(rows, where, sort, skip, limit)
                assert [row.id for row in found] == expected, (where, sort)
                assert pages(store, where, sort, size) == model.page(rows, where, sort, 0, None)
        where = wheres[0]
        gone = [row.id for row in rows if model.meets(row, where)]
        assert store.delete(THINGS, where) == len(gone)
        assert {row.id for row in store.find(THINGS)} == set(columns) - set(gone)


def pages(store: Calls, where: Where, sort: Sort | None, size: int) -> list[str]:
    found: list[str] = []
    after = None
    while page := store.find(THINGS, where, sort=sort, after=after, limit=size):
        found += [row.id for row in page]
        after = position(page[-1], sort)
    return found
