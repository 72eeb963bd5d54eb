"""What each action of a sample cost: every question to a model, and all other money, by action.

A slot is an action, and one more is what comes after the last. A cost belongs to the first action that was
decided at or after the moment it was spent: drafts and monitors come before the decision they lead to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from control_tower.logs.events import (
    SEAT_PREFIX,
    decided_message,
    is_seat_turn,
    raw_events,
    seconds,
    tool_calls,
)
from control_tower.logs.json_text import JsonObject, child
from control_tower.models.cost import Cost, cost_of_usage

_NOTHING_ASKED = (SEAT_PREFIX, "scripted/")
"""Providers that answer with what a decision or a script says, so that nothing is paid."""

_FREE = Cost(0.0)


def slot_costs(events: Iterable[Any]) -> list[Cost]:
    """The cost of each action, and last of what came after them.

    What scorers spent is left out. An answer from the response cache cost nothing; one without usage or price
    makes its slot incomplete.

    Args:
        events: JSON or Inspect's objects, in order.
    """
    listed = list(raw_events(events))
    decided = [
        _decided(event) for event in listed if is_seat_turn(event) and tool_calls(decided_message(event))
    ]
    spans = {str(event.get("id")): event for event in listed if event.get("event") == "span_begin"}
    slots = [_FREE] * (len(decided) + 1)
    for event in listed:
        spent = _spent(event)
        if spent is not None and not any(span.get("type") == "scorer" for span in _around(event, spans)):
            slot = bisect_left(decided, seconds(event) or 0.0)
            slots[slot] += spent
    return slots


def _spent(event: JsonObject) -> Cost | None:
    """What an event says was spent; None when it is not about that."""
    if event.get("event") == "model":
        if str(event.get("model")).startswith(_NOTHING_ASKED) or event.get("cache") == "read":
            return None
        usage = child(child(event, "output"), "usage")
        return cost_of_usage(usage) if usage else Cost(None, incomplete=True)
    if event.get("event") == "info" and event.get("source") == "cost":
        usd = child(event, "data").get("usd")
        return Cost(None, incomplete=True) if usd is None else Cost(float(usd))
    return None


def _decided(event: JsonObject) -> float:
    """When a turn was decided; where that is not stated it is taken for the moment it was asked for."""
    return seconds(event, "completed") or seconds(event) or 0.0


def _around(event: JsonObject, spans: dict[str, JsonObject]) -> Iterator[JsonObject]:
    """The spans that an event is in, innermost first."""
    span = spans.get(str(event.get("span_id")))
    while span is not None:
        yield span
        span = spans.get(str(span.get("parent_id")))
