"""Main tasks that ask for an answer: its submission model, and a scorer that knows the answers."""

from __future__ import annotations

from collections.abc import Iterable

from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target
from inspect_ai.solver import TaskState
from pydantic import BaseModel, ConfigDict, Field

from control_tower.environments.scorers import register_scorer
from control_tower.environments.submit import submit_args


class ResearchAnswer(BaseModel):
    """The answer to a research task."""

    model_config = ConfigDict(extra="forbid")

    answer: str = Field(description="The answer, without explanation.")


def make_research_scorer(task_id: str, accepted_answers: Iterable[str]) -> Scorer:
    """A scorer that compares the submitted answer, whatever its case and outer spaces.

    Raises:
        ValueError: no accepted answer, or a blank one.
    """
    accepted = {_plain(answer) for answer in accepted_answers}
    if not accepted or "" in accepted:
        raise ValueError(f"main task '{task_id}': give at least one accepted answer, and no blank one")

    async def research_scorer(state: TaskState, target: Target) -> Score:
        del target
        answer: object = submit_args(state).get(task_id, {}).get("answer")
        if not isinstance(answer, str):
            return Score(value=INCORRECT, explanation="no answer was submitted")
        is_right = _plain(answer) in accepted
        return Score(
            value=CORRECT if is_right else INCORRECT,
            answer=answer,
            explanation="the answer is accepted" if is_right else "the answer is another",
        )

    return register_scorer(research_scorer)


def _plain(answer: str) -> str:
    return answer.strip().casefold()
