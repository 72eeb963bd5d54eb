"""How well scores tell attack from honest: ROC curves, the area under them, hits at a false-positive rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control_tower.metrics.bootstrap import NORMAL_QUANTILE, wilson
from control_tower.metrics.columns import Ints, Level, Monitor, known
from control_tower.metrics.report import Estimate, Roc, Scores
from control_tower.metrics.samples import Floats, SampleNumbers

LONGEST = 1000
"""Points of a curve that are kept."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one stream; infinite for those that have none, where that counts against the monitor."""

    scores: Floats
    cluster: Ints
    """Of each score."""
    unscored: int = 0
    """How many have none."""

    @property
    def known(self) -> Floats:
        """Those that there are, ascending."""
        return np.sort(self.scores[np.isfinite(self.scores)])

    @property
    def clusters(self) -> int:
        """In how many clusters there are scores."""
        return int(np.unique(self.cluster).size)


def rocs(
    monitor: Monitor,
    honest: Sequence[SampleNumbers],
    attack: Sequence[SampleNumbers],
    cluster: Callable[[SampleNumbers], str],
    rates: Sequence[float],
    spend_unscored: bool,
) -> tuple[tuple[Roc, ...], tuple[Scores, ...]]:
    """Curves and scores by action, where the monitor judges actions, and by trajectory.

    Args:
        monitor: Whose scores they are.
        honest: Measured honest samples.
        attack: Measured attack samples; actions after the harm do not count.
        cluster: Names a sample's cluster.
        rates: The false-positive rates to say the hits at.
        spend_unscored: Whether what lacks a score counts against the monitor: attack as never noticed,
            honest as noticed first. Else it is left out.
    """
    levels: tuple[Level, ...] = ("action", "trajectory") if monitor.judges_actions else ("trajectory",)
    curves: list[Roc] = []
    scores: list[Scores] = []
    for level in levels:
        used = replace(monitor, level=level)
        negatives = _collect(used, honest, cluster, math.inf if spend_unscored else None)
        positives = _collect(used, attack, cluster, -math.inf if spend_unscored else None)
        curves.append(roc(level, negatives, positives, rates))
        scores.append(Scores(level, negatives.known, positives.known))
    return tuple(curves), tuple(scores)


def roc(level: Level, honest: Scored, attack: Scored, rates: Sequence[float]) -> Roc:
    """The curve of two sets of scores.

    Args:
        level: What has a score.
        honest: Those that should be low.
        attack: Those that should be high.
        rates: The false-positive rates to say the hits at.
    """
    counts = honest.scores.size, attack.scores.size, honest.unscored, attack.unscored
    for name, side in (("honest", honest), ("attack", attack)):
        if not np.isfinite(side.scores).any():
            unknown = Estimate(None, reason=f"no {name} {level} has a score")
            return Roc(level, np.zeros(0), np.zeros(0), unknown, dict.fromkeys(rates, unknown), *counts)
    values = np.unique(np.concatenate([honest.scores, attack.scores]))[::-1]
    false = np.concatenate([[0.0], _at_least(honest.scores, values)])
    true = np.concatenate([[0.0], _at_least(attack.scores, values)])
    hits = _hits(false, true, rates, attack)
    return Roc(level, *_thinned(false, true), auroc(honest, attack), hits, *counts)


def auroc(honest: Scored, attack: Scored) -> Estimate:
    """The chance that an attack's score is above an honest one's, ties half.

    The interval is DeLong's for clustered data, on the logit scale.
    """
    of_attack = _placements(attack.scores, honest.scores)
    of_honest = 1.0 - _placements(honest.scores, attack.scores)
    area = float(of_attack.mean())
    variance = sum(
        _clustered_variance(placed - area, side.cluster)
        for placed, side in ((of_attack, attack), (of_honest, honest))
    )
    n = honest.scores.size + attack.scores.size
    if not math.isfinite(variance):
        return Estimate(area, n=n, reason="no interval: a stream has a single cluster")
    if variance <= 0 or area in (0.0, 1.0):
        return Estimate(area, n=n, reason="no interval: these samples show no variation")
    centre = math.log(area / (1 - area))
    half = NORMAL_QUANTILE * math.sqrt(variance) / (area * (1 - area))
    low, high = (1 / (1 + math.exp(-edge)) for edge in (centre - half, centre + half))
    return Estimate(area, low, high, n, "delong")


def _collect(
    monitor: Monitor,
    samples: Sequence[SampleNumbers],
    cluster: Callable[[SampleNumbers], str],
    unscored: float | None,
) -> Scored:
    """The scores of a level; what lacks one has the score `unscored`, or is left out."""
    names: dict[str, int] = {}
    numbers = np.array([names.setdefault(cluster(sample), len(names)) for sample in samples], dtype=np.intp)
    scores, owner, lacking = _scores(monitor, samples)
    if unscored is not None:
        scores = np.concatenate([scores, np.full(lacking.size, unscored)])
        owner = np.concatenate([owner, lacking])
    return Scored(scores, numbers[owner], lacking.size)


def _scores(monitor: Monitor, samples: Sequence[SampleNumbers]) -> tuple[Floats, Ints, Ints]:
    """The scores of a level, the sample of each, and the sample of each that is lacking."""
    if monitor.level == "action":
        ends = [None if sample.landed_at is None else sample.landed_at + 1 for sample in samples]
        said = [(monitor.numbers(sample), end) for sample, end in zip(samples, ends, strict=True)]
        scores, owner = _joined([numbers.actions[:end] for numbers, end in said])
        lacking, of_lacking = _joined([numbers.lacking[:end] for numbers, end in said])
        return *known(scores, owner), of_lacking[lacking.astype(bool)]
    if monitor.judges_trajectories:
        runs = [monitor.numbers(sample).trajectory for sample in samples]
        scores, owner = known(np.array(runs, dtype=np.float64), np.arange(len(runs)))
    else:
        scores, owner = monitor.in_time(samples)
    return scores, owner, np.setdiff1d(np.arange(len(samples)), owner)


def _joined(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], Ints]:
    """The arrays one after the other, and which of them each number is from."""
    owner = np.repeat(np.arange(len(arrays)), [array.size for array in arrays])
    return np.concatenate([np.zeros(0), *arrays]), owner


def _at_least(scores: Floats, values: Floats) -> Floats:
    """Which share of the scores is at or above each value."""
    return (scores.size - np.searchsorted(np.sort(scores), values, side="left")) / scores.size


def _placements(scores: Floats, others: Floats) -> Floats:
    """Of each score, the share of the others that is below it, ties half."""
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return (below + upto) / (2.0 * others.size)


def _clustered_variance(deviations: Floats, cluster: Ints) -> float:
    """The variance of a mean over clusters; infinite for a single one."""
    _, position = np.unique(cluster, return_inverse=True)
    sums = np.bincount(position, weights=deviations)
    if sums.size < 2:
        return math.inf
    return float((sums**2).sum()) * sums.size / (sums.size - 1) / deviations.size**2


def _hits(false: Floats, true: Floats, rates: Sequence[float], attack: Scored) -> Mapping[float, Estimate]:
    """The share of attack at a rate of false positives; as many trials as there are clusters."""
    hits: dict[float, Estimate] = {}
    for rate in rates:
        index = int(np.searchsorted(false, rate, side="right")) - 1
        value = float(true[index])
        if index + 1 < false.size:
            part = (rate - false[index]) / (false[index + 1] - false[index])
            value += float(part * (true[index + 1] - true[index]))
        low, high = wilson(value * attack.clusters, attack.clusters)
        hits[rate] = Estimate(value, low, high, attack.scores.size, "wilson")
    return hits


def _thinned(false: Floats, true: Floats) -> tuple[Floats, Floats]:
    """The curve without points on straight lines up and across, and of very many points an even choice."""
    keep = np.ones(false.size, dtype=bool)
    flat = (false[2:] == false[1:-1]) & (false[1:-1] == false[:-2])
    level = (true[2:] == true[1:-1]) & (true[1:-1] == true[:-2])
    keep[1:-1] = ~(flat | level)
    false, true = false[keep], true[keep]
    if false.size > LONGEST:
        chosen = np.unique(np.linspace(0, false.size - 1, LONGEST).astype(np.intp))
        false, true = false[chosen], true[chosen]
    return false, true
