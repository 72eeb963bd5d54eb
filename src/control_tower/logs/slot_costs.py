"""What each action of a sample cost: calls of models, and all other money, by action.

A slot is an action, and one more is what comes after the last. A cost belongs to the first action that was
decided at or after the moment it was spent: drafts and live monitors come before the decision they lead to.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from control_tower.logs.costs import payment
from control_tower.logs.events import (
    decided_message,
    is_seat_turn,
    raw_events,
    seconds,
    spans_around,
    spans_by_id,
    tool_calls,
)
from control_tower.logs.json_text import JsonObject
from control_tower.models.cost import Cost

MONITOR_ROLE = "monitor/"
"""How the role of a monitor's call begins; its name follows."""

_JUDGED_ACTION = re.compile(r"monitor: action (\d+)")


@dataclass(frozen=True)
class Slots:
    """USD by slot, the finished run last."""

    usd: tuple[float, ...]
    incomplete: bool = False
    """Whether something in it has no price."""

    def __add__(self, other: Slots) -> Slots:
        sums = tuple(a + b for a, b in zip(self.usd, other.usd, strict=True))
        return Slots(sums, self.incomplete or other.incomplete)


@dataclass(frozen=True)
class SlotCosts:
    """What a sample cost while it was played, and what monitors cost that looked at it afterwards."""

    playing: Slots
    monitors: Mapping[str, Slots]
    """By monitor, each verdict in the slot that it is about."""


def slot_costs(events: Iterable[Any]) -> SlotCosts:
    """The cost of each action of a sample, and last of what came after them; that of scorers is left out.

    Args:
        events: JSON or Inspect's objects, in order.
    """
    listed = list(raw_events(events))
    spans = spans_by_id(listed)
    decided = [_decided(e) for e in listed if is_seat_turn(e) and tool_calls(decided_message(e))]
    playing = [Cost()] * (len(decided) + 1)
    monitors: dict[str, list[Cost]] = {}
    for event in listed:
        paid = payment(event)
        if paid is None:
            continue
        around = list(spans_around(event, spans))
        if not any(span.get("type") == "scorer" for span in around):
            playing[bisect_left(decided, seconds(event) or 0.0)] += paid.cost
        elif paid.role.startswith(MONITOR_ROLE):
            slots = monitors.setdefault(paid.role.removeprefix(MONITOR_ROLE), [Cost()] * len(playing))
            slots[_judged(around, len(decided))] += paid.cost
    return SlotCosts(_slots(playing), {name: _slots(slots) for name, slots in monitors.items()})


def _slots(costs: list[Cost]) -> Slots:
    return Slots(tuple(cost.usd or 0.0 for cost in costs), any(cost.incomplete for cost in costs))


def _judged(around: Iterable[JsonObject], last: int) -> int:
    """The slot that a monitor's call is about, by the spans it was made in."""
    for span in around:
        if match := _JUDGED_ACTION.fullmatch(str(span.get("name"))):
            return min(int(match[1]), last)
    return last


def _decided(event: JsonObject) -> float:
    """When a turn was decided; where that is not stated, the moment it was asked for stands in."""
    return seconds(event, "completed") or seconds(event) or 0.0
