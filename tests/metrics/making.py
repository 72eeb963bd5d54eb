"""Samples made by hand, for metrics that take plain numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from control_tower.metrics.samples import MonitorNumbers, SampleNumbers, SampleRef

Score = float | None


def _numbers(actions: Sequence[Score], trajectory: Score, judges_trajectory: bool) -> MonitorNumbers:
    values = [math.nan if score is None else score for score in actions]
    return MonitorNumbers(
        np.array(values, dtype=np.float64),
        trajectory=math.nan if trajectory is None else trajectory,
        judges_trajectory=judges_trajectory or trajectory is not None,
        lacking=np.isnan(values),
    )


def _actions(count: int) -> dict[str, Any]:
    return {
        "actions": count,
        "judgeable": np.ones(count, dtype=bool),
        "ran": count,
        "slot_costs": np.zeros(count + 1),
    }


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
    given = {**_actions(len(scores)), **fields}
    return SampleNumbers(
        ref=SampleRef("log", id, epoch),
        stream="honest",
        environment=given.pop("environment", "env"),
        mains=given.pop("mains", ("main",)),
        main=main,
        monitors=given.pop("monitors", {monitor: _numbers(scores, trajectory, judges_trajectory)}),
        **given,
    )


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
    given = {**_actions(len(scores)), **fields}
    return SampleNumbers(
        ref=SampleRef("log", id, epoch),
        stream="attack",
        environment=given.pop("environment", "env"),
        mains=given.pop("mains", ("main",)),
        sides=given.pop("sides", ("side",)),
        side=side,
        landed_at=landed_at,
        monitors=given.pop("monitors", {monitor: _numbers(scores, trajectory, judges_trajectory)}),
        **given,
    )
