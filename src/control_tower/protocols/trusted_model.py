"""The trusted model: asked in the untrusted model's place, its turn made fit to be that model's own."""

from collections.abc import Container
from dataclasses import dataclass, replace
from uuid import uuid4

from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageUser,
    get_model,
)
from inspect_ai.tool import ToolCall

from control_tower.game.red import with_fresh_id
from control_tower.game.telling import for_another_model, without_thoughts
from control_tower.game.views import BlueView
from control_tower.models.asking import ask
from control_tower.models.roles import TRUSTED


@dataclass(frozen=True)
class TrustedTurn:
    """What the trusted model answered."""

    message: ChatMessageAssistant
    problem: str | None
    """Why nothing of it may run; None when it has calls and each can run."""


async def ask_trusted(view: BlueView, instruction: str | None = None) -> TrustedTurn:
    """Ask the trusted model what the untrusted model is asked, with the same tools and without its thoughts.

    Args:
        view: what blue sees, the request included.
        instruction: told last, to the trusted model alone.

    Raises:
        OperationError: its provider failed.
    """
    model = get_model(role=TRUSTED, required=True)
    request = for_another_model(view.conversation)
    if instruction:
        request.append(ChatMessageUser(content=instruction))
    output = await ask(model, request, view.tools)
    taken = {str(message.id) for message in view.history}
    message = _as_public_turn(output.message, taken)
    return TrustedTurn(message, _problem(message, output.stop_reason, {tool.name for tool in view.tools}))


def _as_public_turn(message: ChatMessageAssistant, taken: Container[str]) -> ChatMessageAssistant:
    """The turn as it may stand in another model's conversation: its words and calls, no thoughts.

    Calls get ids of their own, since providers remember calls by id together with the thoughts before them.
    """
    calls = [replace(call, id=uuid4().hex) for call in message.tool_calls or []]
    public = without_thoughts(message).model_copy(update={"tool_calls": calls or None})
    return with_fresh_id(public, taken)


def _problem(message: ChatMessageAssistant, stop_reason: str, offered: Container[str]) -> str | None:
    if stop_reason == "content_filter":
        return "the trusted model refused"
    calls = message.tool_calls or []
    if not calls:
        return f"the trusted model made no call (stop reason {stop_reason})"
    return next(filter(None, (_unrunnable(call, offered) for call in calls)), None)


def _unrunnable(call: ToolCall, offered: Container[str]) -> str | None:
    if call.parse_error:
        return f"the trusted model's call to {call.function} is malformed: {call.parse_error}"
    if call.function not in offered:
        return f"the trusted model called {call.function}, which is not offered"
    return None
