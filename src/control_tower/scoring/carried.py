"""Scores of samples in which nothing ran: the recording's, when the whole of it was served."""

from collections.abc import Mapping
from typing import Any

from inspect_ai.scorer import Score
from inspect_ai.solver import TaskState

from control_tower.records.scores import SIDE_SUFFIX

SERVED = "replay_served"
"""Sample metadata: `all` when the play was the recorded one to its end, else `part`."""

DIVERGED = "replay_divergence"
"""Sample metadata: where the play left its recording, in one line."""


def carried_score(state: TaskState, recorded: Mapping[str, Any], key: str) -> Score:
    """The Score of a task in a sample that only served recorded outputs.

    Args:
        state: the sample.
        recorded: the Scores of the recording, by name, as JSON.
        key: the Score's name in this run.
    """
    metadata: Mapping[str, Any] = state.metadata
    if metadata.get(SERVED) != "all":
        divergence = metadata.get(DIVERGED)
        return Score.unscored(
            reason="replay_diverged" if divergence else "replay_partial",
            explanation="Nothing ran, and the play is not the recorded one to its end: "
            + (divergence or "it ended earlier."),
        )
    found = recorded_score(recorded, key)
    if found is None:
        return Score.unscored(
            reason="not_recorded", explanation="Nothing ran, and the recording has no Score of this task."
        )
    score = Score.model_validate(found)
    explanation = f"Taken over from the recording, all of which was served. {score.explanation or ''}"
    return score.model_copy(update={"explanation": explanation.strip(), "history": []})


def recorded_score(recorded: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """A task's Score in a run that may have named it with or without the suffix of side tasks."""
    plain = key.removesuffix(SIDE_SUFFIX)
    for name in (key, plain, plain + SIDE_SUFFIX):
        if name in recorded:
            return recorded[name]
    return None
