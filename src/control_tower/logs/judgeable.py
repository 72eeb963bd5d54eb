"""What of a finished sample can be judged: each action after what came before it, or the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.events import tool_calls
from control_tower.logs.json_text import JsonObject, children


@dataclass(frozen=True)
class Conversation:
    """The decided turns of a sample with their results, as messages."""

    messages: tuple[JsonObject, ...]
    actions: tuple[int, ...]
    """Of each action the position of its message."""

    def before(self) -> Iterator[tuple[int, int]]:
        """Of each action its index and how many messages there are up to its own."""
        return ((index, position + 1) for index, position in enumerate(self.actions))


def conversation_of(sample: JsonObject) -> Conversation:
    """The conversation of a sample of a log.

    Raises:
        ValidationError: it has calls, but no decided turns.
    """
    played = Transcript.of(sample)
    if not played.turns and any(tool_calls(message) for message in children(sample, "messages")):
        raise ValidationError(
            f"sample {sample.get('id')}: its calls belong to no decided turns: convert the log"
        )
    messages = [_plain(message) for message in played.conversation()]
    actions: list[int] = []
    position = 0
    for turn in played.turns:
        if turn.index is not None:
            actions.append(position)
        position += 1 + sum(call.event is not None for call in turn.calls)
    return Conversation(tuple(messages), tuple(actions))


def _plain(message: JsonObject) -> JsonObject:
    """A message whose content is text or parts, as messages have it; tools may return anything."""
    content: Any = message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [None]
    if isinstance(content, str) or all(isinstance(part, dict) for part in parts):
        return message
    return {**message, "content": "" if content is None else str(cast("Any", content))}
