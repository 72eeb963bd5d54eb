"""Events of a sample as raw JSON, whether they come from a log or from a sample that is running."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from control_tower.logs.json_text import JsonObject, child, children

SEAT_ROLE = "untrusted"
SEAT_PREFIX = "eval/"

_COMMON = {"event", "timestamp", "completed", "pending", "span_id", "uuid"}
_KEPT = {
    "model": _COMMON | {"model", "role", "output"},
    "tool": _COMMON | {"id", "function", "arguments", "result", "error", "message_id"},
    "info": _COMMON | {"source", "data"},
    "span_begin": _COMMON | {"id", "parent_id", "type", "name"},
}
_KEPT_OF_QUESTIONS: dict[str, Any] = {
    **dict.fromkeys(_COMMON | {"model", "role", "cache"}, True),
    "output": {"usage": True, "choices": {"__all__": {"stop_reason"}}},
}
"""What is kept of a model event that is no decided turn: what it cost."""


def raw_events(events: Iterable[Any]) -> Iterator[JsonObject]:
    """Each event as JSON. Of Inspect's own event objects only what tells about actions is kept."""
    for event in events:
        yield cast(JsonObject, event) if isinstance(event, Mapping) else _raw(event)


def is_seat_turn(event: JsonObject) -> bool:
    """Whether an event is a turn that blue decided: answered by the seat, not by a model behind it."""
    return (
        event.get("event") == "model"
        and event.get("role") == SEAT_ROLE
        and str(event.get("model")).startswith(SEAT_PREFIX)
        and bool(children(child(event, "output"), "choices"))
    )


def decided_message(event: JsonObject) -> JsonObject:
    """The assistant message of a seat turn."""
    return child(children(child(event, "output"), "choices")[0], "message")


def tool_calls(message: JsonObject) -> list[JsonObject]:
    """The tool calls of a message, as logged."""
    return [call for call in children(message, "tool_calls") if "id" in call and "function" in call]


def spans_by_id(events: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """The events that begin a span, by its id."""
    return {str(event.get("id")): event for event in events if event.get("event") == "span_begin"}


def spans_around(event: JsonObject, spans: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    """The spans that an event is in, innermost first.

    Args:
        event: any.
        spans: as `spans_by_id` gives them.
    """
    span = spans.get(str(event.get("span_id")))
    while span is not None:
        yield span
        span = spans.get(str(span.get("parent_id")))


def seconds(event: JsonObject, field: str = "timestamp") -> float | None:
    """A time of an event in epoch seconds; None when it is not stated. Without a zone it is UTC."""
    moment = event.get(field)
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.fromisoformat(moment)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def model_input(sample: JsonObject, event: JsonObject) -> list[JsonObject]:
    """The messages that a model event was given, from the event or from the sample's pool of them."""
    given = children(event, "input")
    refs: Sequence[Sequence[int]] = event.get("input_refs") or []
    if given or not refs:
        return given
    pool = children(child(sample, "events_data"), "messages")
    return [message for start, end in refs for message in pool[start:end]]


def resolved(value: Any, attachments: Mapping[str, str]) -> Any:
    """A copy of a JSON value in which texts kept apart (`attachment://...`) are put back.

    A reference to something the sample does not hold stays as it is.
    """
    if isinstance(value, str):
        return attachments.get(value[13:], value) if value.startswith("attachment://") else value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        return {key: resolved(item, attachments) for key, item in items.items()}
    if isinstance(value, list):
        return [resolved(item, attachments) for item in cast("list[Any]", value)]
    return value


def _raw(event: Any) -> JsonObject:
    kind = event.event
    if kind not in _KEPT:
        return {"event": kind}
    if kind == "model" and event.role != SEAT_ROLE:
        return event.model_dump(include=_KEPT_OF_QUESTIONS)
    return event.model_dump(include=_KEPT[kind])
