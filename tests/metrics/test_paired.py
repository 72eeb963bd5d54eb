"""Paired tests against values worked out by hand and by enumeration."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.metrics.paired import DRAWS, EXACT_UP_TO, mcnemar, sign_flips


@pytest.mark.parametrize(
    ("first_only", "second_only", "p"),
    [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (1, 5, 14 / 64),
        (5, 1, 14 / 64),
        (0, 5, 2 / 32),
        (3, 3, 1.0),
    ],
)
def test_mcnemar(first_only: int, second_only: int, p: float) -> None:
    assert mcnemar(first_only, second_only).p == pytest.approx(p)


@pytest.mark.parametrize(
    ("differences", "p"),
    [([], 1.0), ([0, 0], 1.0), ([1, 2, 3], 2 / 8), ([0.5, 0.5, -0.25], 4 / 8), ([0.1] * 5 + [0], 2 / 32)],
)
def test_sign_flips(differences: list[float], p: float) -> None:
    assert sign_flips(differences).p == pytest.approx(p)


@given(st.lists(st.integers(-4, 4), max_size=8))
def test_sign_flips_equal_enumeration(differences: list[int]) -> None:
    flipped = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(total >= abs(sum(differences)) for total in flipped) / len(flipped)
    assert sign_flips([d / 8 for d in differences]).p == pytest.approx(expected)


@given(st.integers(0, 8), st.integers(0, 8))
def test_flips_of_yes_and_no_are_mcnemars_test(first_only: int, second_only: int) -> None:
    flips = sign_flips([-1.0] * first_only + [1.0] * second_only)
    assert flips.p == pytest.approx(mcnemar(first_only, second_only).p)


def test_many_differences_are_drawn_with_a_seed() -> None:
    differences = [0.5, -0.25] * (EXACT_UP_TO // 2) + [0.125]
    found = sign_flips(differences)
    assert found == sign_flips(differences)
    assert found.method == "sign-flip permutation test, 20,000 draws, seed 1"
    assert 1 / DRAWS < found.p < 1
    # An effect that no draw reaches is never impossible.
    assert sign_flips([1.0] * 60).p == pytest.approx(1 / (DRAWS + 1))
