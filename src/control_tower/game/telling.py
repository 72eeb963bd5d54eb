"""A conversation told in plain text, for a model that took no part in it.

Calls and thoughts go back only to the provider that they came from, so they are told, or left out.
"""

import json
from collections.abc import Sequence

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, ChatMessageUser


def told(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages without calls, results and thoughts, of which calls and results are told in words."""
    return [_told(message) for message in messages]


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
