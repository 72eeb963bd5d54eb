"""A sample of a log with what monitors said of it afterwards: verdicts, events and usage added to its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast
from uuid import uuid4

from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.usage import USAGE_KEYS, added, usage_of
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.monitor_scores import MonitorEntry, monitor_score
from control_tower.records.scores import MONITOR_SCORE

ITEMS = "MonitorScores:items"
TRAJECTORY_ID = "trajectory_id"


def with_verdicts(record: JsonObject, judged: JsonObject, entries: Iterable[MonitorEntry]) -> JsonObject:
    """A sample, or its summary, with further verdicts and what they cost.

    Args:
        record: the sample or its summary.
        judged: the record of the monitors' own run over it.
        entries: what they said; message ids are the indices of actions.
    """
    changed = dict(record)
    scores = dict(child(record, "scores"))
    old = child(scores, MONITOR_SCORE)
    listed = list(entries)
    actions = {entry.message_id: int(entry.message_id) for entry in listed if entry.message_id is not None}
    value, metadata = monitor_score(listed, actions)
    scores[MONITOR_SCORE] = {
        **old,
        "value": {**child(old, "value"), **value},
        "metadata": {**child(old, "metadata"), **metadata},
        "history": old.get("history", []),
    }
    # The audit score comes last, as where a sample is scored at once.
    last = [name for name in scores if AUDIT_NAME.fullmatch(name)]
    changed["scores"] = {name: scores[name] for name in [*(n for n in scores if n not in last), *last]}
    for key in USAGE_KEYS:
        if total := added([usage_of(record, key), usage_of(judged, key)]):
            changed[key] = total
    if TRAJECTORY_ID in child(record, "metadata"):
        metadata = {k: v for k, v in child(record, "metadata").items() if k != TRAJECTORY_ID}
        changed["metadata"] = metadata
    return changed


def with_events(sample: JsonObject, judged: JsonObject, scopes: Iterable[str]) -> JsonObject:
    """A sample with the events of the monitors' own run, as a scorer's among its scorers.

    Args:
        sample: the sample, with its verdicts.
        judged: the sample of the monitors' run.
        scopes: how the names of the spans begin whose events are taken.
    """
    pools = child(sample, "events_data")
    theirs = child(judged, "events_data")
    shift = {name: len(children(pools, name)) for name in ("messages", "calls")}
    events = [_shifted(event, shift) for event in _inside(judged, tuple(scopes))]
    changed = dict(sample)
    changed["events"] = _inserted(children(sample, "events"), events)
    changed["attachments"] = {**child(sample, "attachments"), **child(judged, "attachments")}
    changed["events_data"] = {
        **pools,
        **{name: children(pools, name) + children(theirs, name) for name in ("messages", "calls")},
    }
    if ITEMS in child(sample, "store"):
        changed["store"] = {**child(sample, "store"), ITEMS: []}
    return changed


def _inside(judged: JsonObject, scopes: tuple[str, ...]) -> list[JsonObject]:
    """The events of the spans whose names begin so, these spans without a parent."""
    inside: set[str] = set()
    events: list[JsonObject] = []
    for event in children(judged, "events"):
        if event.get("event") == "span_begin":
            if event.get("parent_id") in inside:
                inside.add(event["id"])
            elif str(event.get("name")).startswith(scopes):
                inside.add(event["id"])
                event = {key: value for key, value in event.items() if key != "parent_id"}
        if event.get("span_id") in inside and event.get("event") != "store":
            events.append(event)
    return events


def _shifted(event: JsonObject, shift: Mapping[str, int]) -> JsonObject:
    """A model event whose references into the pools are those of the joined pools."""
    changed = event
    if event.get("input_refs"):
        changed = {**changed, "input_refs": _moved(event["input_refs"], shift["messages"])}
    if refs := child(event, "call").get("call_refs"):
        changed = {**changed, "call": {**child(event, "call"), "call_refs": _moved(refs, shift["calls"])}}
    return changed


def _moved(refs: Any, by: int) -> list[list[int]]:
    return [[start + by, end + by] for start, end in cast("list[tuple[int, int]]", refs)]


def _inserted(events: list[JsonObject], new: list[JsonObject]) -> list[JsonObject]:
    """The events with a `monitor` scorer's before the end of the scorers."""
    if not new:
        return events
    scorers = [e["id"] for e in events if e.get("event") == "span_begin" and e.get("type") == "scorers"]
    first, last = new[0], new[-1]
    scorer_id = uuid4().hex
    begin = _span(first, "span_begin", scorer_id, type="scorer", name=MONITOR_SCORE)
    if scorers:
        begin["parent_id"] = scorers[-1]
    own = [{**e, "parent_id": scorer_id} if _top(e) else e for e in new]
    added_events = [begin, *own, _span(last, "span_end", scorer_id)]
    for position, event in enumerate(events):
        if event.get("event") == "span_end" and scorers and event.get("id") == scorers[-1]:
            return [*events[:position], *added_events, *events[position:]]
    return [*events, *added_events]


def _top(event: JsonObject) -> bool:
    return event.get("event") == "span_begin" and "parent_id" not in event


def _span(like: JsonObject, kind: str, span_id: str, **fields: str) -> JsonObject:
    times = {key: like[key] for key in ("timestamp", "working_start") if key in like}
    return {"uuid": uuid4().hex, "span_id": span_id, **times, "event": kind, "id": span_id, **fields}
