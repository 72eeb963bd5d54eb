"""A conversation as another model may read it, which took no part in it.

Thoughts are for the model that had them alone. They, and sometimes calls, go back only to the provider that
they came from, so they are told or left out.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
)


def told(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages without calls, results and thoughts, of which calls and results are told in words."""
    return [_told(message) for message in messages]


def for_another_model(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages with calls and results, but without thoughts.

    Calls have other ids, the same whenever they are asked for, since providers remember calls by id together
    with the thoughts before them.
    """
    return [_for_another_model(message) for message in messages]


def without_thoughts(message: ChatMessageAssistant) -> ChatMessageAssistant:
    """A turn's words and calls, without thoughts and the marks that a provider puts beside words."""
    if isinstance(message.content, str):
        return message
    parts = [
        part.model_copy(update={"internal": None}) if isinstance(part, ContentText) else part
        for part in message.content
        if not isinstance(part, ContentReasoning)
    ]
    return message.model_copy(update={"content": parts or ""})


def _for_another_model(message: ChatMessage) -> ChatMessage:
    match message:
        case ChatMessageAssistant():
            calls = [replace(call, id=_other_id(call.id)) for call in message.tool_calls or []]
            return without_thoughts(message).model_copy(update={"tool_calls": calls or None})
        case ChatMessageTool():
            answered = message.tool_call_id
            return message.model_copy(update={"tool_call_id": _other_id(answered) if answered else None})
        case _:
            return message


def _other_id(call_id: str) -> str:
    return uuid5(NAMESPACE_OID, call_id).hex


def _told(message: ChatMessage) -> ChatMessage:
    match message:
        case ChatMessageAssistant():
            calls = [
                f"[calls {call.function} with {json.dumps(call.arguments)}]"
                for call in message.tool_calls or []
            ]
            return ChatMessageAssistant(content="\n".join([message.text, *calls]).strip())
        case ChatMessageTool():
            result = message.error.message if message.error else message.text
            return ChatMessageUser(content=f"[{message.function} answers]\n{result}")
        case _:
            return message
