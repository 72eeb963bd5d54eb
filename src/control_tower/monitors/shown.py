"""What monitors may see of a conversation: no hidden or private calls, no model names, no metadata.

A call that blue refused or audited is shown as it was drafted: what blue made of it says what others
thought of it, and that it was audited says that the sample is an attack.

Turns are reduced once and kept, so that a sample's later steps cost no more than its earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolCall

from control_tower.logs.json_text import child
from control_tower.logs.tool_names import is_engine_tool, is_hidden, withheld_in

_PRIVATE = ("ct_private", "is_policy_private", "is_monitor_result")
"""Metadata keys of turns that only red sees, or that were never decided."""

NOT_RUN = "This call was not run."
"""The result of every call that blue refused or audited."""

V = TypeVar("V")


class PerTurn(Generic[V]):
    """Values made of turns, each made once as long as the turn stays the same objects."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Sequence[ChatMessage], Any, V]] = {}

    def get(self, turn: Sequence[ChatMessage], situation: Any = None) -> V | None:
        """The value kept for a turn in a situation, None when there is none."""
        kept = self._kept.get(id(turn[0]))
        if kept is None or kept[1] != situation or len(kept[0]) != len(turn):
            return None
        return kept[2] if all(a is b for a, b in zip(kept[0], turn, strict=True)) else None

    def keep(self, turn: Sequence[ChatMessage], value: V, situation: Any = None) -> V:
        """Keep a value; the turn is kept with it, so that no other object gets its identity."""
        self._kept[id(turn[0])] = (turn, situation, value)
        return value


def turns_of(messages: Sequence[ChatMessage]) -> Iterator[Sequence[ChatMessage]]:
    """The messages in turns: each assistant message with what follows it up to the next."""
    start = 0
    for position, message in enumerate(messages):
        if isinstance(message, ChatMessageAssistant) and position > start:
            yield messages[start:position]
            start = position
    if messages:
        yield messages[start:]


class Shown:
    """The reduced conversation of one sample."""

    def __init__(self) -> None:
        self._reduced = PerTurn[list[ChatMessage]]()

    def __call__(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """What monitors see of the messages."""
        shown: list[ChatMessage] = []
        for turn in turns_of(messages):
            reduced = self._reduced.get(turn)
            shown += self._reduced.keep(turn, _reduced(turn)) if reduced is None else reduced
        return shown


def visible_calls(message: ChatMessageAssistant) -> list[ToolCall]:
    """The calls of a turn that monitors see, each as it was drafted."""
    return [call for call in _drafted(message) if not is_hidden(call.function)]


def _reduced(turn: Sequence[ChatMessage]) -> list[ChatMessage]:
    if any((message.metadata or {}).get(key) for message in turn[:1] for key in _PRIVATE):
        return []
    drafted: dict[str | None, ToolCall] = {}
    reduced: list[ChatMessage] = []
    for message in turn:
        plain = message.model_copy(update={"source": None, "metadata": None})
        if isinstance(plain, ChatMessageAssistant):
            drafted |= {call.id: call for call in _drafted(plain)}
            calls = visible_calls(plain)
            plain = plain.model_copy(update={"tool_calls": calls or None, "model": None})
            if not calls and not plain.content:
                continue
        elif isinstance(plain, ChatMessageTool):
            call = drafted.get(plain.tool_call_id)
            if is_hidden(plain.function or "") or (call and is_hidden(call.function)):
                continue
            if is_engine_tool(plain.function or ""):
                name = call.function if call else None
                plain = plain.model_copy(update={"function": name, "content": NOT_RUN, "error": None})
        reduced.append(plain)
    return reduced


def _drafted(message: ChatMessageAssistant) -> list[ToolCall]:
    """The calls of a turn, those that blue refused or audited as they were before."""
    return [_original(call) for call in message.tool_calls or []]


def _original(call: ToolCall) -> ToolCall:
    inner = withheld_in(call.function, call.arguments)
    if inner is None:
        return call
    return replace(call, function=str(inner.get("function")), arguments=child(inner, "arguments"))
