"""Numbers with intervals: means of samples and safety, each with what is known of its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from control_tower.metrics.bootstrap import percentile_interval, wilson
from control_tower.metrics.columns import Ints
from control_tower.metrics.report import Estimate
from control_tower.metrics.samples import Floats


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean over samples, by cluster so that clusters can be drawn."""

    sums: Floats
    counts: Floats

    @classmethod
    def of(cls, values: Floats, cluster: Ints, clusters: int) -> Mean:
        """The mean of the values that are known (not NaN)."""
        known = ~np.isnan(values)
        return cls(
            np.bincount(cluster[known], weights=values[known], minlength=clusters).astype(np.float64),
            np.bincount(cluster[known], minlength=clusters).astype(np.float64),
        )

    def resampled(self, weights: Floats) -> Floats:
        """Its value in each resample, as a column; NaN where no sample with a value was drawn."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return ((weights @ self.sums) / (weights @ self.counts))[:, None]

    def estimate(self, resampled: Floats | None, missing: int, worst: float, reason: str) -> Estimate:
        """The mean with its interval.

        A proportion of single samples has the Wilson interval, everything else that of the bootstrap.

        Args:
            resampled: Its values in the resamples; None without a bootstrap.
            missing: Samples that should have a value and have none.
            worst: The value they would have if all had gone wrong.
            reason: Why there is no value, where there is none.
        """
        total, count = math.fsum(self.sums), int(self.counts.sum())
        at_worst = (total + worst * missing) / (count + missing) if missing else None
        if not count:
            return Estimate(None, reason=reason, worst=at_worst)
        single = bool((self.counts <= 1).all() and np.isin(self.sums, (0.0, 1.0)).all())
        clusters = int(np.count_nonzero(self.counts))
        values = None if single else resampled
        return interval(total / count, values, count, clusters, wilson_of=single, worst=at_worst)


def interval(
    value: float,
    resampled: Floats | None,
    n: int,
    clusters: int,
    *,
    wilson_of: bool = False,
    worst: float | None = None,
    reason: str | None = None,
) -> Estimate:
    """A value with the interval of its resamples.

    Resamples that are all alike say nothing. For a proportion of 0 or 1 it is then the Wilson interval of as
    many trials as there are clusters; for any other value there is none.

    Args:
        value: The value.
        resampled: Its values in the resamples, as a column; None without a bootstrap.
        n: How many samples it rests on.
        clusters: In how many clusters they are.
        wilson_of: Whether it is a proportion of independent samples.
        worst: See `Estimate`.
        reason: See `Estimate`.
    """
    if resampled is not None and clusters > 1:
        (low,), (high,) = percentile_interval(resampled)
        undefined = int(np.isnan(resampled).sum())
        if undefined and reason is None:
            reason = f"{undefined} of {resampled.size} resamples have no value"
        if undefined < resampled.size and low < high:
            return Estimate(value, float(low), float(high), n, "bootstrap", reason, worst)
    if wilson_of or (resampled is not None and clusters > 1 and value in (0.0, 1.0)):
        low, high = wilson(value * clusters, clusters)
        return Estimate(value, low, high, n, "wilson", reason, worst)
    if resampled is not None and reason is None:
        alike = "all clusters are alike" if clusters > 1 else "there is a single cluster to resample"
        reason = f"no interval: {alike}"
    return Estimate(value, n=n, reason=reason, worst=worst)
