"""Whether two runs differ: tests of differences between paired numbers, exact where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EXACT_UP_TO = 16
"""Differences whose signs are all tried out; of more, `DRAWS` random ones."""
DRAWS = 20_000
SEED = 1

_TOLERANCE = 1e-9
_BLOCK = 500
"""Draws that are in memory at once."""


@dataclass(frozen=True)
class Significance:
    """A two-sided p-value and how it came about."""

    p: float
    method: str


def mcnemar(first_only: int, second_only: int) -> Significance:
    """McNemar's exact test of paired yes-or-no verdicts.

    Args:
        first_only: Pairs with a yes in the first only.
        second_only: Pairs with a yes in the second only.
    """
    flips = first_only + second_only
    tail = sum(math.comb(flips, k) for k in range(min(first_only, second_only) + 1))
    return Significance(min(1.0, 2 * tail / 2**flips), "exact McNemar test")


def sign_flips(differences: Sequence[float]) -> Significance:
    """A permutation test of whether paired differences are around 0.

    If the two runs were alike, each difference could as well have the other sign. The p-value is the share of
    all choices of signs whose sum is at least as far from 0 as the observed one.

    Args:
        differences: One for each pair that is independent of the others.
    """
    given = np.array([d for d in differences if abs(d) > _TOLERANCE])
    observed = abs(given.sum()) - _TOLERANCE * max(1.0, np.abs(given).sum())
    if given.size <= EXACT_UP_TO:
        sums = np.zeros(1)
        for difference in given:
            sums = np.concatenate([sums + difference, sums - difference])
        return Significance(float((np.abs(sums) >= observed).mean()), "exact sign-flip permutation test")
    draw = np.random.default_rng(SEED)
    extreme = 0
    for _ in range(DRAWS // _BLOCK):
        signs = 2.0 * draw.integers(0, 2, size=(_BLOCK, given.size)) - 1.0
        extreme += int((np.abs(signs @ given) >= observed).sum())
    method = f"sign-flip permutation test, {DRAWS:,} draws, seed {SEED}"
    return Significance((extreme + 1) / (DRAWS + 1), method)
