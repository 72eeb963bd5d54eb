"""Asking a judge: one forced call of a form, validated; whatever else comes back is asked for again.

A verdict is only ever read from the arguments of that one call, never from prose, where a judge may quote
the text it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import uuid4

import pydantic
from inspect_ai.model import ChatMessage, ChatMessageAssistant, Model, ModelOutput, execute_tools
from inspect_ai.tool import ToolCall, ToolDef, ToolFunction, ToolInfo, ToolParams
from inspect_ai.util import LimitExceededError, json_schema

from control_tower.config import redact
from control_tower.errors import OperationError, on_one_line
from control_tower.models.asking import ask

ATTEMPTS = 3
"""How often a judge is asked for one verdict."""

F = TypeVar("F", bound=pydantic.BaseModel)


class Unanswered(Exception):
    """A judge gave no readable answer in as many attempts as were allowed."""

    def __init__(self, reason: str, attempts: int) -> None:
        super().__init__(reason)
        self.attempts = attempts


class Unreadable(ValueError):
    """What a judge answered is no filled-in form."""


@dataclass(frozen=True)
class Form(Generic[F]):
    """The tool that a judge must call."""

    name: str
    description: str
    fields: type[F]
    """Its arguments; each field's description is shown to the judge."""

    def tool(self) -> ToolDef:
        """The tool as Inspect offers and runs it."""
        return ToolDef(_note, self.name, self.description, _parameters(self.fields))

    def info(self) -> ToolInfo:
        """The tool as a judge is told of it."""
        return ToolInfo(name=self.name, description=self.description, parameters=_parameters(self.fields))

    def read(self, output: ModelOutput) -> tuple[F, ToolCall]:
        """The answer of an output.

        Raises:
            Unreadable: there is none, or it is not what the form asks for; the message says how.
        """
        calls = output.message.tool_calls or []
        if output.stop_reason == "content_filter":
            raise Unreadable("the judge refused to answer")
        if not calls:
            said = "with nothing" if not output.completion.strip() else f"without calling {self.name}"
            raise Unreadable(f"the judge answered {said} (stop reason {output.stop_reason})")
        if len(calls) > 1:
            raise Unreadable(f"the judge made {len(calls)} calls at once")
        [call] = calls
        if call.function != self.name:
            raise Unreadable(f"the judge called {call.function[:80]!r} instead of {self.name}")
        if call.parse_error:
            raise Unreadable(f"the judge's call could not be read: {call.parse_error[:200]}")
        try:
            return self.fields.model_validate(call.arguments), call
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            given = "" if first["type"] == "missing" else f" is {first['input']!r:.80}"
            raise Unreadable(f"the judge's {where}{given}: {first['msg']}") from None


@cache
def _parameters(fields: type[pydantic.BaseModel]) -> ToolParams:
    schema = json_schema(fields)
    return ToolParams(properties=schema.properties or {}, required=schema.required or [])


async def _note(**kwargs: Any) -> str:
    return "Noted."


async def judge(model: Model, request: Callable[[], Sequence[ChatMessage]], form: Form[F]) -> F:
    """A judge's answer.

    Refusals, malformed answers and failures of the provider are asked again, each time with a request that is
    made anew.

    Args:
        model: the judge.
        request: makes the messages of one attempt.
        form: what it must fill in.

    Raises:
        Unanswered: no attempt gave a readable answer.
    """
    reason = ""
    for _ in range(ATTEMPTS):
        messages = request()
        try:
            output = await ask(model, messages, [form.info()], ToolFunction(form.name))
        except LimitExceededError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is no answer
            reason = _failure(model, error)
            continue
        try:
            answer, call = form.read(output)
        except Unreadable as error:
            reason = str(error)
            continue
        # Run so that the log shows the answer as a tool event, under an id that no call of the agent has.
        noted = ChatMessageAssistant(content="", tool_calls=[replace(call, id=f"{form.name}-{uuid4().hex}")])
        await execute_tools([noted], [form.tool()])
        return answer
    raise Unanswered(redact(reason), ATTEMPTS)


def _failure(model: Model, error: Exception) -> str:
    if isinstance(error, OperationError):
        return str(error)
    return f"{model} failed with {type(error).__name__}: {on_one_line(str(error))}"
