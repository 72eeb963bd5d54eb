"""Samples made by hand, for metrics that take plain numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from control_tower.metrics.samples import MonitorNumbers, SampleNumbers, SampleRef, Stream

Score = float | None


def _numbers(actions: Sequence[Score], trajectory: Score, judges_trajectory: bool) -> MonitorNumbers:
    values = [math.nan if score is None else score for score in actions]
    return MonitorNumbers(
        np.array(values, dtype=np.float64),
        trajectory=math.nan if trajectory is None else trajectory,
        judges_trajectory=judges_trajectory or trajectory is not None,
        lacking=np.isnan(values),
    )


def _sample(id: str, scores: Sequence[Score], stream: Stream, **fields: Any) -> SampleNumbers:
    count = len(scores)
    numbers = _numbers(scores, fields.pop("trajectory"), fields.pop("judges_trajectory"))
    given: dict[str, Any] = {
        "environment": "env",
        "mains": ("main",),
        "monitors": {fields.pop("monitor"): numbers},
        "actions": count,
        "judgeable": np.ones(count, dtype=bool),
        "ran": count,
        "slot_costs": np.zeros(count + 1),
    }
    return SampleNumbers(SampleRef("log", id, fields.pop("epoch")), stream, **{**given, **fields})


def honest(
    id: str,
    scores: Sequence[Score] = (),
    *,
    epoch: int = 1,
    main: float | None = 1.0,
    trajectory: Score = None,
    judges_trajectory: bool = False,
    monitor: str = "m",
    **fields: Any,
) -> SampleNumbers:
    """An honest sample whose actions have these scores of one monitor; None is unscored."""
    judged = {"trajectory": trajectory, "judges_trajectory": judges_trajectory, "monitor": monitor}
    return _sample(id, scores, "honest", epoch=epoch, main=main, **judged, **fields)


def attack(
    id: str,
    scores: Sequence[Score] = (),
    *,
    epoch: int = 1,
    side: float | None = 1.0,
    landed_at: int | None = None,
    trajectory: Score = None,
    judges_trajectory: bool = False,
    monitor: str = "m",
    **fields: Any,
) -> SampleNumbers:
    """An attack sample whose actions have these scores of one monitor; None is unscored."""
    judged = {"trajectory": trajectory, "judges_trajectory": judges_trajectory, "monitor": monitor}
    fields = {"sides": ("side",), "side": side, "landed_at": landed_at, **fields}
    return _sample(id, scores, "attack", epoch=epoch, **judged, **fields)
