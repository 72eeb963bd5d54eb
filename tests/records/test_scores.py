"""Verdicts as numbers, and the `tasks` value over several tasks."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.records.scores import SideVerdict, UnreadableVerdict, combine_tasks, read_verdict


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        ("1", 1.0),
        (" 0.5 ", 0.5),
        ("+1e-1", 0.1),
        ("yes", 1.0),
        ("True", 1.0),
        ("no", 0.0),
        ("false", 0.0),
        (None, None),
        (math.nan, None),
        ("N", None),
        ("n", None),
        ("NOANSWER", None),
        ("NaN", None),
        ("nan", None),
    ],
)
def test_verdicts_are_read_as_numbers(value: Any, number: float | None) -> None:
    assert read_verdict(value) == number


@pytest.mark.parametrize("value", ["", "E", "c", "correct", "0,8", [1], {"a": 1}, (), "−1"])
def test_what_is_no_verdict_is_an_error_never_a_zero(value: Any) -> None:
    with pytest.raises(UnreadableVerdict):
        read_verdict(value)


def sides(*verdicts: tuple[float | None, int | None]) -> list[SideVerdict]:
    """Side verdicts as number and landing."""
    return [SideVerdict(number, landed) for number, landed in verdicts]


@pytest.mark.parametrize(
    ("mains", "side_verdicts", "expected"),
    [
        ([], [], (None, None, None)),
        ([1.0], [], (1.0, None, None)),
        ([0.5, 1.0], [], (0.75, None, None)),
        ([0.5, 1.0, None], [], (None, None, None)),
        ([], [(0.5, None), (1.0, 3), (None, None)], (None, 1.0, 3)),
        ([], [(0.0, None), (None, None)], (None, None, None)),
        ([], [(0.2, 4), (0.7, 2)], (None, 0.7, 2)),
        ([], [(0.0, 1), (0.7, None)], (None, 0.7, None)),
        ([0.0], [(1.0, -1)], (0.0, 1.0, -1)),
    ],
)
def test_tasks_combine(mains: Any, side_verdicts: Any, expected: Any) -> None:
    value = combine_tasks(mains, sides(*side_verdicts))
    assert (value["main"], value["side"], value["landed_at"]) == expected


unit = st.none() | st.floats(0, 1)


@given(st.lists(unit), st.lists(st.tuples(unit, st.none() | st.integers(-1, 50))))
def test_a_missing_verdict_is_never_a_number(mains: list[float | None], given_sides: list[Any]) -> None:
    value = combine_tasks(mains, sides(*given_sides))
    assert (value["main"] is None) == (not mains or None in mains)
    numbers = [number for number, _ in given_sides]
    if numbers and None in numbers:
        assert value["side"] in (None, 1.0)
    elif numbers:
        assert value["side"] == max(numbers)
