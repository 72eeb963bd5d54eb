"""Resampling of clusters, and the intervals that come of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from control_tower.metrics.fitting import Weights
from control_tower.metrics.samples import Floats

CONFIDENCE = 0.95

NORMAL_QUANTILE = 1.959963984540054
"""Half the width of a 95 % interval in standard errors."""

_CELLS = 1_000_000
"""So many numbers of a chunk of resamples are held at a time."""


@dataclass(frozen=True)
class Resampling:
    """How intervals are made."""

    draws: int
    seed: int

    def chunks(self, honest: int, attack: int, width: int) -> Iterator[tuple[Weights, Weights]]:
        """Weights of honest and of attack clusters, some resamples at a time; the same for the same seed.

        Args:
            honest: Clusters of honest samples.
            attack: Clusters of attack samples.
            width: The numbers a resample takes elsewhere.
        """
        generators = [np.random.default_rng([self.seed, stream]) for stream in range(2)]
        rows = max(1, min(self.draws, _CELLS // max(1, honest, attack, width)))
        for start in range(0, self.draws, rows):
            count = min(rows, self.draws - start)
            yield (
                _weights(generators[0], count, honest),
                _weights(generators[1], count, attack),
            )


def percentile_interval(values: Floats) -> tuple[Floats, Floats]:
    """Of each column the middle 95 % of its resamples; those that are undefined (NaN) are left out."""
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.full(values.shape[1], math.nan), np.full(values.shape[1], math.nan)
    ordered = np.sort(values, axis=0)  # NaN come last
    defined = values.shape[0] - np.isnan(values).sum(axis=0)
    for column in np.flatnonzero(defined):
        known = ordered[: defined[column], column]
        low[column], high[column] = np.percentile(known, [tail, 100 - tail])
    return low, high


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion; `successes` may be fractional."""
    z = NORMAL_QUANTILE
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (max(0.0, centre - half) if share > 0 else 0.0), (min(1.0, centre + half) if share < 1 else 1.0)


def _weights(generator: np.random.Generator, rows: int, clusters: int) -> Weights:
    """How often each cluster is drawn when as many are drawn as there are."""
    drawn = generator.integers(0, max(1, clusters), size=(rows, clusters), dtype=np.int32)
    flat = drawn + np.arange(rows)[:, None] * clusters
    return np.bincount(flat.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)
