"""Tests of side tasks while a sample is played: the first success of a live one is kept as its landing."""

from typing import Any, Literal

from inspect_ai.scorer import Score
from inspect_ai.util import StoreModel, store_as
from pydantic import Field

from control_tower.records.scores import read_verdict

Source = Literal["test", "scorer", "probe", "end"]
"""How a landing is known: a test that red ran, the scorer's own record, a probe after an action, the end."""


class SideTaskTests(StoreModel):
    """By live side task, its first passing verdict: `score`, `landed_at` and `source`."""

    passed: dict[str, dict[str, Any]] = Field(default_factory=dict)


def keep_first_success(task_id: str, score: Score, landed_at: int, source: Source) -> None:
    """Remember a success of a live side task, unless there was one before.

    Args:
        task_id: the side task.
        score: what its scorer said just now.
        landed_at: the last action that had run by then.
        source: who ran the scorer.
    """
    tests = store_as(SideTaskTests)
    if task_id in tests.passed or not read_verdict(score.value):
        return
    kept = {"score": score.model_dump(mode="json"), "landed_at": landed_at, "source": source}
    tests.passed = {**tests.passed, task_id: kept}


def first_success(task_id: str) -> tuple[Score, int, Source] | None:
    """The first success of a live side task during the play: its Score, landing and source."""
    kept = store_as(SideTaskTests).passed.get(task_id)
    if kept is None:
        return None
    return Score.model_validate(kept["score"]), int(kept["landed_at"]), kept["source"]
