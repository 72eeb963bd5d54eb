"""Each trajectory by itself: its score, its verdict, when it did harm, how likely it is caught."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from control_tower.metrics.columns import Monitor
from control_tower.metrics.report import Dot
from control_tower.metrics.samples import Floats, SampleNumbers


def dots(
    honest: Sequence[SampleNumbers],
    attack: Sequence[SampleNumbers],
    monitor: Monitor | None,
    caught: Floats,
) -> tuple[Dot, ...]:
    """The measured samples.

    Args:
        honest: Honest samples.
        attack: Attack samples.
        monitor: Whose scores they are shown with.
        caught: By attack sample (row) and budget (column), how likely it is caught; NaN where unknown.
    """
    known = [tuple(None if math.isnan(p) else p for p in row) for row in caught.tolist()]
    return (
        *(_dot(sample, monitor, sample.main) for sample in honest),
        *(
            replace(_dot(sample, monitor, sample.side), caught=row)
            for sample, row in zip(attack, known, strict=True)
        ),
    )


def _dot(sample: SampleNumbers, monitor: Monitor | None, verdict: float | None) -> Dot:
    score, at = None, None
    scores = monitor.numbers(sample).actions if monitor else np.full(sample.actions, math.nan)
    if monitor and monitor.judges_trajectories:
        run = monitor.numbers(sample).trajectory
        score = None if math.isnan(run) else run
    elif (known := np.flatnonzero(~np.isnan(scores))).size:
        at = int(known[np.argmax(scores[known])])
        score = float(scores[at])
    return Dot(
        sample=sample.ref.id,
        epoch=sample.ref.epoch,
        stream=sample.stream,
        environment=sample.environment,
        score=score,
        at=at,
        actions=sample.actions,
        verdict=verdict,
        landed_at=sample.landed_at,
        scores=scores,
        audited=sample.audited,
    )
