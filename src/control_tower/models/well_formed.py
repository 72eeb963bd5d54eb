"""Messages that every provider takes and every log keeps: no halves of characters, no calls nobody can run.

A lone surrogate (half of a UTF-16 pair) cannot be encoded: one in a conversation would fail the next
request, and Inspect would lose the whole sample when it writes the log. It is kept as an escape.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar, cast

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageBase,
    Content,
    ContentReasoning,
)
from inspect_ai.tool import ToolCall
from pydantic_core import PydanticSerializationError

M = TypeVar("M", bound=ChatMessageBase)


def well_formed(message: M) -> M:
    """The message itself, or a copy with `\\udXXX` in place of each lone surrogate.

    A signed thought with one loses its signature: no provider takes a changed thought for its own.
    """
    try:
        message.model_dump_json()
    except PydanticSerializationError:
        unsigned = message
        if isinstance(message.content, list):
            parts = [_unsigned(part) for part in message.content]
            unsigned = message.model_copy(update={"content": parts})
        return type(message).model_validate(escaped(unsigned.model_dump()))
    return message


def well_formed_turn(choice: ChatCompletionChoice) -> ChatMessageAssistant:
    """A model's turn, well formed; calls that cannot be run as they were meant are marked as malformed."""
    message = choice.message
    calls = [_checked(call) for call in message.tool_calls or []]
    if calls and choice.stop_reason == "max_tokens":
        # What was cut off reads as left out: a file would be written without its text.
        calls[-1] = _malformed(calls[-1], "the answer was cut off in the middle of this call")
    if calls != (message.tool_calls or []):
        message = message.model_copy(update={"tool_calls": calls})
    return well_formed(message)


def escaped(value: Any) -> Any:
    """A JSON value with `\\udXXX` in place of each lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {escaped(key): escaped(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [escaped(item) for item in cast("list[Any]", value)]
    return value


def _checked(call: ToolCall) -> ToolCall:
    for text in _texts(call.arguments):
        if "\0" in text:
            problem = "the arguments hold a NUL character; write it in an escaped form"
        elif escaped(text) != text:
            problem = "the arguments hold half of a surrogate pair; write the whole character"
        else:
            continue
        return _malformed(call, problem)
    return call


def _malformed(call: ToolCall, problem: str) -> ToolCall:
    return replace(call, parse_error=call.parse_error or problem)


def _unsigned(part: Content) -> Content:
    # OpenAI's thoughts are encrypted and have an id in `signature`; their readable summary may change.
    if not isinstance(part, ContentReasoning) or (part.redacted and part.signature):
        return part
    thought = part.summary or part.reasoning
    return part if escaped(thought) == thought else ContentReasoning(reasoning=thought)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)
