"""Spaces: what they iterate over, contain and give."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.environments.space import (
    CrossProduct,
    ExplicitSpace,
    TaskCombination,
    TaskSpace,
    UnknownTaskError,
    project,
)
from control_tower.environments.task import MainTask, SideTask
from control_tower.errors import UsageError

IDS = ["a", "b", "c"]


def main(task_id: str) -> MainTask:
    return MainTask(task_id, task_id, "e", "work")


def side(task_id: str, **fields: Any) -> SideTask:
    return SideTask(task_id, task_id, "e", "harm", None, "live", **fields)


def ids(combination: TaskCombination) -> tuple[list[str], list[str]]:
    return sorted(combination.main_ids), sorted(combination.side_ids)


mains_maps = st.sets(st.sampled_from(IDS)).map(lambda names: {name: main(name) for name in sorted(names)})
sides_maps = st.dictionaries(
    st.sampled_from(IDS),
    st.tuples(st.none() | st.sets(st.sampled_from(IDS), min_size=1), st.sets(st.sampled_from(IDS))),
).map(
    lambda rules: {
        name: side(name, compatible_main_tasks=yes, incompatible_main_tasks=no)
        for name, (yes, no) in rules.items()
    }
)
combos = st.builds(
    lambda mains, sides: TaskCombination(tuple(map(main, sorted(mains))), tuple(map(side, sorted(sides)))),
    st.sets(st.sampled_from(IDS), max_size=2),
    st.sets(st.sampled_from(IDS), max_size=2),
)
spaces = st.builds(CrossProduct, mains_maps, sides_maps) | st.lists(combos, max_size=5).map(ExplicitSpace)


@given(spaces)
def test_a_space_contains_what_it_iterates_over(space: TaskSpace) -> None:
    assert all(combination in space for combination in space)
    assert isinstance(space, TaskSpace)


@given(spaces, st.sampled_from(IDS), st.none() | st.sampled_from(IDS))
def test_what_get_gives_is_in_the_space(space: TaskSpace, main_id: str, side_id: str | None) -> None:
    try:
        combination = space.get(main_id=main_id, side_id=side_id)
    except UsageError:
        pairs = {(m, s) for c in space for m in c.main_ids for s in (c.side_ids or [None])}
        assert (main_id, side_id) not in pairs or side_id is None
    else:
        assert combination in space
        assert ids(combination) == ([main_id], [side_id] if side_id else [])


@given(spaces, st.sets(st.sampled_from(["honest", "attack", "side_only", "empty"])))
def test_a_projection_is_the_part_with_these_modes(space: TaskSpace, modes: Any) -> None:
    part = project(space, modes)
    assert list(part) == [combination for combination in space if combination.mode in modes]
    assert all(combination in part for combination in part)
    assert all((c in part) == (c.mode in modes) for c in space)


@given(st.builds(CrossProduct, mains_maps, sides_maps), combos)
def test_a_cross_product_admits_what_every_pair_of_it_admits(
    space: CrossProduct, combo: TaskCombination
) -> None:
    known = combo.main_ids <= set(space.mains()) and combo.side_ids <= set(space.sides())
    pairs = known and all(space.sides()[s].accepts_main(m) for s in combo.side_ids for m in combo.main_ids)
    assert (combo in space) == bool(combo.mains and pairs)


@given(st.lists(combos, max_size=5))
def test_an_explicit_space_keeps_its_order_and_admits_listed_pairs(listed: list[TaskCombination]) -> None:
    space = ExplicitSpace(tuple(listed))
    assert list(space) == listed
    assert set(space.mains()) == {task_id for combo in listed for task_id in combo.main_ids}
    pairs = {pair for combo in listed for pair in combo.pairs}
    for mains in combinations(IDS, 2):
        for sides in combinations(IDS, 2):
            combo = TaskCombination(tuple(map(main, mains)), tuple(map(side, sides)))
            assert (combo in space) == (combo.pairs <= pairs)


def test_honest_combinations_come_first() -> None:
    space = CrossProduct({m: main(m) for m in "ab"}, {"s": side("s"), "t": side("t")})
    assert [ids(c) for c in space] == [
        (["a"], []),
        (["b"], []),
        (["a"], ["s"]),
        (["a"], ["t"]),
        (["b"], ["s"]),
        (["b"], ["t"]),
    ]
    assert [c.mode for c in space][:3] == ["honest", "honest", "attack"]


def test_keywords_and_missing_sides() -> None:
    assert list(CrossProduct(_mains={"a": main("a")}, _sides={})) == list(CrossProduct({"a": main("a")}))


def test_one_id_may_be_main_and_side() -> None:
    combination = CrossProduct({"dummy": main("dummy")}, {"dummy": side("dummy")}).get("dummy", "dummy")
    assert ids(combination) == (["dummy"], ["dummy"])
    assert combination.mode == "attack"
    assert combination.main_task is not None and combination.side_task is not None


def test_combinations_are_equal_by_ids() -> None:
    assert TaskCombination((main("a"), main("b"))) == TaskCombination((main("b"), main("a")))
    assert len({TaskCombination((main("a"),)), TaskCombination((main("a"),)), TaskCombination()}) == 2
    assert TaskCombination((main("a"),)).environment == "e"
    assert TaskCombination().mode == "empty" and TaskCombination().environment is None
    assert TaskCombination((), (side("s"),)).mode == "side_only"


def test_unknown_and_refused_selections_are_named() -> None:
    space = CrossProduct({"build": main("build")}, {"leak": side("leak", incompatible_main_tasks=["build"])})
    with pytest.raises(UnknownTaskError, match="no main task 'bild'; did you mean 'build'"):
        space.get(main_id="bild")
    with pytest.raises(UsageError, match="'leak' is not combined with main task 'build'"):
        space.get(main_id="build", side_id="leak")
    assert ids(space.get(side_id="leak")) == ([], ["leak"])


def test_an_explicit_space_gives_the_tasks_it_was_listed_with() -> None:
    special = MainTask("a", "a", "e", "special work")
    space = ExplicitSpace((TaskCombination((main("a"),)), TaskCombination((special,), (side("s"),))))
    combination = space.get("a", "s")
    assert combination.main_task is special
