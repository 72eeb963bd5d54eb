"""Events as they are named today: the seat's model, the submission tool, and an event for each live audit."""

from __future__ import annotations

from typing import Any, cast

from control_tower.conversion.ids import derived_id
from control_tower.conversion.notes import Notes
from control_tower.logs.events import SEAT_PREFIX, decided_message, is_seat_turn, resolved, tool_calls
from control_tower.logs.json_text import JsonObject, child

_OLD_SEAT = "eval2/"
_OLD_SUBMIT = "submit_side_task"
_SUBMIT = "set_side_task_submission_args"


def with_current_events(sample: JsonObject, notes: Notes) -> JsonObject:
    """A sample whose events say what they say under today's names; none is taken away."""
    given: Any = sample.get("events")
    if not isinstance(given, list):
        return sample
    events: list[Any] = []
    last = -1
    for raw in cast("list[Any]", given):
        if not isinstance(raw, dict):
            events.append(raw)
            continue
        event = _renamed(cast(JsonObject, raw), notes)
        events.append(event)
        if is_seat_turn(event) and tool_calls(decided_message(event)):
            last += 1
        elif _says_audited(event, child(sample, "attachments")):
            if last < 0:
                notes.lost("audit before the first action")
            else:
                notes.changed("event for an audit made while it ran")
                events.append(_audit(event, last, len(events)))
    return {**sample, "events": events}


def _renamed(event: JsonObject, notes: Notes) -> JsonObject:
    kind = event.get("event")
    if kind == "model" and str(event.get("model")).startswith(_OLD_SEAT):
        notes.changed("seat model renamed to eval/")
        return {**event, "model": SEAT_PREFIX + event["model"].removeprefix(_OLD_SEAT)}
    if kind == "tool" and event.get("function") == _OLD_SUBMIT:
        notes.changed(f"{_OLD_SUBMIT} renamed to {_SUBMIT}")
        return {**event, "function": _SUBMIT}
    return event


def _says_audited(event: JsonObject, attachments: dict[str, str]) -> bool:
    if event.get("event") != "info" or event.get("source") != "eval":
        return False
    data = resolved(event.get("data"), attachments)
    return isinstance(data, dict) and cast(JsonObject, data).get("audited") is True


def _audit(note: JsonObject, action: int, position: int) -> JsonObject:
    same = {key: note[key] for key in ("span_id", "timestamp", "working_start", "pending") if key in note}
    uuid = f"{note['uuid']}-audit" if note.get("uuid") else derived_id("audit", position, action)[:22]
    return {"uuid": uuid, **same, "event": "info", "source": "audit", "data": {"audited": action}}
