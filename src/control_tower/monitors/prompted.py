"""A monitor that asks a model with a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import pydantic
from inspect_ai.model import ChatMessage, Model, get_model, model_roles
from inspect_ai.scorer import Score

from control_tower.errors import StateError
from control_tower.inspect_private import with_role
from control_tower.models.judging import Form, Unanswered, judge
from control_tower.models.roles import TRUSTED
from control_tower.monitors.answers import SCORE
from control_tower.monitors.config import MONITOR_ROLE
from control_tower.monitors.monitor import MonitorFailed
from control_tower.monitors.naming import asked_as
from control_tower.monitors.prompt import Prompt
from control_tower.monitors.rendering import Renderer

F = TypeVar("F", bound=pydantic.BaseModel)

Count = Callable[[str, list[ChatMessage], Form[Any]], Any]
"""Is told of a request (role, messages, form) and answers it."""

counting: ContextVar[Count | None] = ContextVar("counting", default=None)
"""Where requests go while they are only counted, so that no model is asked."""


class PromptMonitor:
    """Asks a judge about a conversation.

    Args:
        prompt: what is asked.
        model: the role that is asked; empty is `monitor`, or `trusted` when that has no model.
        cot_level: what is shown of the agent's own words.
    """

    def __init__(
        self, prompt: Prompt, model: str = "", cot_level: Literal["none", "text", "cot"] = "none"
    ) -> None:
        self.inputs = prompt.inputs
        self._judge = PromptJudge(prompt, model, cot_level)

    async def __call__(self, messages: Sequence[ChatMessage], **inputs: Any) -> Score:
        answer = await self._judge.ask(messages, inputs, SCORE)
        return Score(value=answer.score, explanation=answer.reasoning)


class PromptJudge:
    """A prompt and the model that fills in a form about it."""

    def __init__(
        self, prompt: Prompt, model: str = "", cot_level: Literal["none", "text", "cot"] = "none"
    ) -> None:
        self._prompt = prompt
        self._model = model
        self._renderer = Renderer(cot_level)

    async def ask(self, messages: Sequence[ChatMessage], inputs: dict[str, Any], form: Form[F]) -> F:
        """The judge's answer.

        Raises:
            MonitorFailed: it gave none that could be read.
        """

        def request() -> list[ChatMessage]:
            return self._renderer.request(self._prompt, messages, inputs)

        if (count := counting.get()) is not None:
            return count(self._model, request(), form)
        try:
            return await judge(judge_model(self._model), request, form)
        except Unanswered as error:
            raise MonitorFailed(str(error), {"attempts": error.attempts}) from error


def judge_model(role: str = "") -> Model:
    """The model of a role, its calls recorded under `monitor/<name of the monitor>`.

    Args:
        role: empty is `monitor`, or `trusted` when that has no model.

    Raises:
        StateError: the role has no model.
    """
    wanted = role or (MONITOR_ROLE if MONITOR_ROLE in model_roles() else TRUSTED)
    if wanted not in model_roles():
        raise StateError(f"a monitor asks role {wanted}, which has no model: --model-role {wanted}=...")
    return with_role(get_model(role=wanted, required=True), asked_as())
