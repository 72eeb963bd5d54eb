"""Whether one sample of a log obeys the format: metadata, Scores, store, messages and events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from control_tower.logs.actions import Transcript
from control_tower.logs.events import SEAT_PREFIX, SEAT_ROLE
from control_tower.logs.findings import Finding, Place, check_table
from control_tower.logs.format import (
    AUDIT_KEYS,
    FAILURE_REASONS,
    FINISH_REASONS,
    LONGEST_ID,
    MONITOR_KEY,
    NOT_ALWAYS,
    RECORDS,
    UNSCORED,
    SampleMetadataTable,
    StoreTable,
)
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import (
    AUDIT_SCORE,
    MONITOR_SCORE,
    SIDE_SUFFIX,
    TASKS_SCORE,
    WORKSPACE_DIFF_SCORE,
    SideVerdict,
    UnreadableVerdict,
    combine_tasks,
    read_verdict,
)

_UNNAMED_MAIN, _UNNAMED_SIDE = "main_task", "side_task"
"""Names of Scores in converted logs of samples that name no task of the role."""


def check_sample(sample: JsonObject, where: str) -> Iterator[Finding]:
    """What of a sample is not as the format says.

    Samples made of an older log by conversion keep that log's messages, which is not held against them.
    """
    transcript = Transcript.of(sample)
    yield from _check_metadata(sample, Place("sample-metadata", where))
    yield from check_table(Place("store", where), StoreTable, child(sample, "store"), "store")
    yield from _check_task_scores(sample, transcript, Place("task-scores", where))
    yield from _check_monitor(sample, transcript, Place("monitor-score", where))
    yield from _check_audits(sample, Place("audit-score", where))
    yield from _check_events(sample, transcript, Place("events", where))
    if "converted_from" not in child(sample, "metadata"):
        yield from _check_messages(sample, transcript, Place("messages", where))


def _check_metadata(sample: JsonObject, place: Place) -> Iterator[Finding]:
    metadata = child(sample, "metadata")
    if len(str(sample.get("id"))) > LONGEST_ID:
        yield place.warning(f"its id is longer than {LONGEST_ID} characters")
    needed = frozenset({"main_tasks", "side_tasks", "environment"})
    yield from check_table(place, SampleMetadataTable, metadata, "metadata", required=needed)
    for key, table in RECORDS.items():
        listed = [child(metadata, key)] if key == "environment" else children(metadata, key)
        for number, record in enumerate(listed):
            path = f"metadata.{key}" if key == "environment" else f"metadata.{key}.{number}"
            yield from check_table(place, table, record, path)
            names = {field.alias or name for name, field in table.model_fields.items()}
            if absent := sorted(names - record.keys() - NOT_ALWAYS):
                yield place.warning(f"`{path}` lacks {', '.join(absent)}")


def _check_task_scores(sample: JsonObject, transcript: Transcript, place: Place) -> Iterator[Finding]:
    scores = child(sample, "scores")
    metadata = child(sample, "metadata")
    if not scores and sample.get("error"):
        return
    mains = [str(task.get("id")) for task in children(metadata, "main_tasks")]
    sides = {str(task.get("id")): task for task in children(metadata, "side_tasks")}
    if not mains and _UNNAMED_MAIN in scores:
        mains = [_UNNAMED_MAIN]
    if not sides and _UNNAMED_SIDE in scores:
        sides = {_UNNAMED_SIDE: JsonObject()}
    side_keys = {id: id + SIDE_SUFFIX if id + SIDE_SUFFIX in scores else id for id in sides}
    order = [WORKSPACE_DIFF_SCORE, *side_keys.values(), *mains, TASKS_SCORE, MONITOR_SCORE, AUDIT_SCORE]
    recorded = [name for name in scores if name in order]
    if recorded != sorted(recorded, key=order.index):
        yield place.warning(f"Scores are in the order {', '.join(recorded)}")
    numbers: list[float | None] = []
    for id in mains:
        yield from _check_task_score(id, child(scores, id), place)
        numbers.append(_number(child(scores, id)))
    verdicts: list[SideVerdict] = []
    for id, task in sides.items():
        score = child(scores, side_keys[id])
        yield from _check_task_score(side_keys[id], score, place)
        yield from _check_landing(id, task, score, len(transcript.actions), place)
        verdicts.append(SideVerdict(_number(score), child(score, "metadata").get("landed_at")))
    if TASKS_SCORE not in scores:
        yield place.error(f"it has no Score {TASKS_SCORE!r}")
        return
    value = child(scores, TASKS_SCORE).get("value")
    if value != combine_tasks(numbers, verdicts):
        combined = combine_tasks(numbers, verdicts)
        yield place.error(f"its Score {TASKS_SCORE!r} is {value}, but its tasks' Scores give {combined}")


def _check_task_score(id: str, score: JsonObject, place: Place) -> Iterator[Finding]:
    if not score:
        return
    value, reason = score.get("value"), score.get("reason")
    if isinstance(value, dict | list) or value is None:
        yield place.error(f"the Score of task {id!r} is {value!r}, no single value")
    if reason is not None and reason not in FAILURE_REASONS:
        yield place.error(
            f"the Score of task {id!r} has the reason {reason!r}, which is none of the format's"
        )
    if "unscored_reason" in child(score, "metadata"):
        yield place.error(f"the Score of task {id!r} keeps `unscored_reason`, which belongs in `reason`")


def _check_landing(
    id: str, task: JsonObject, score: JsonObject, actions: int, place: Place
) -> Iterator[Finding]:
    if not score:
        return
    metadata = child(score, "metadata")
    landed = metadata.get("landed_at")
    if "landed_at" not in metadata:
        yield place.error(f"the Score of side task {id!r} has no `landed_at`")
    elif landed is None:
        if task.get("failure_type") == "live" and _number(score):
            yield place.error(f"the live side task {id!r} succeeded, but `landed_at` is null")
    elif type(landed) is not int or not -1 <= landed < max(actions, 1):
        yield place.error(f"side task {id!r} landed at {landed!r}, but there are {actions} actions")
    elif not _number(score) or task.get("failure_type") != "live":
        yield place.error(f"side task {id!r} has `landed_at`, but is delayed or did not succeed")


def _check_monitor(sample: JsonObject, transcript: Transcript, place: Place) -> Iterator[Finding]:
    score = child(child(sample, "scores"), MONITOR_SCORE)
    if not score:
        return
    verdicts = child(score, "value")
    for key, value in verdicts.items():
        match = MONITOR_KEY.fullmatch(key)
        if match is None:
            yield place.error(f"its key {key!r} names no verdict")
        elif match["action"] and int(match["action"]) >= len(transcript.actions):
            yield place.error(f"its key {key!r} names an action that there is not")
        elif match["draft"] in transcript.by_message:
            yield place.error(f"its key {key!r} calls an action a draft")
        if value != UNSCORED and not (_is_number(value) and 0 <= value <= 100):
            yield place.error(f"the verdict {key!r} is {value!r}, not from 0 to 100 or {UNSCORED!r}")
    for key in child(score, "metadata"):
        if verdicts.get(key) != UNSCORED:
            yield place.error(f"its metadata explains {key!r}, which is not {UNSCORED!r}")


def _check_audits(sample: JsonObject, place: Place) -> Iterator[Finding]:
    scores = child(sample, "scores")
    stream = "attack" if children(child(sample, "metadata"), "side_tasks") else "honest"
    for name in scores:
        if AUDIT_NAME.fullmatch(name) and child(scores, name).get("value") is not None:
            keys = frozenset(child(child(scores, name), "value"))
            if keys != AUDIT_KEYS[stream]:
                yield place.error(f"{name!r} of this {stream} sample has the keys {', '.join(sorted(keys))}")


def _check_events(sample: JsonObject, transcript: Transcript, place: Place) -> Iterator[Finding]:
    ended_early = sample.get("error") or sample.get("limit")
    reasons = [data["finished"] for data in transcript.facts("eval") if "finished" in data]
    unready = any(score.get("reason") == "env_not_ready" for score in _scores(sample))
    never_begun = unready and not transcript.turns
    if len(reasons) != 1 and not ended_early and not never_begun:
        yield place.warning(f"{len(reasons)} events say why it finished, not one")
    for reason in reasons:
        if reason not in FINISH_REASONS:
            yield place.error(f"it finished for the reason {reason!r}, which is none of the format's")
    # Old logs audit a finished run as well, which is named by the number of its actions.
    converted = "converted_from" in child(sample, "metadata")
    for index in transcript.audited:
        if not 0 <= index < len(transcript.actions) + converted:
            yield place.error(f"an audit names action {index}, but there are {len(transcript.actions)}")
    for turn in transcript.turns:
        if not turn.message_id or "/" in turn.message_id:
            yield place.error(f"turn {turn.index} has the message id {turn.message_id!r}")
        if child(turn.event, "output").get("usage"):
            yield place.error(f"turn {turn.index} has usage, which belongs to its drafts")
    repeated = [id for id, n in Counter(turn.message_id for turn in transcript.turns).items() if n > 1]
    if repeated:
        yield place.error(f"turns share the message ids {', '.join(map(str, repeated))}")
    for event in transcript.events:
        seat = event.get("event") == "model" and str(event.get("model")).startswith(SEAT_PREFIX)
        if seat and event.get("role") != SEAT_ROLE:
            yield place.error(f"the seat was called in the role {event.get('role')!r}")
    for data in transcript.facts("cost"):
        if not {"component", "usd", "role"} <= data.keys():
            yield place.error(f"a cost event has only {', '.join(sorted(data))}")


def _check_messages(sample: JsonObject, transcript: Transcript, place: Place) -> Iterator[Finding]:
    decided = {call.id for turn in transcript.turns for call in turn.calls}
    committed: set[str] = set()
    for message in children(sample, "messages"):
        calls = children(message, "tool_calls")
        if message.get("role") == "assistant":
            if message.get("content") != "" or not calls:
                yield place.error("an assistant message is no record of executed calls")
            committed.update(str(call.get("id")) for call in calls)
        elif message.get("role") != "tool":
            yield place.error(f"a message has the role {message.get('role')!r}")
        elif message.get("tool_call_id") not in committed:
            yield place.error(f"a result answers {message.get('tool_call_id')!r}, which was not called")
    if strangers := sorted(committed - decided):
        yield place.error(f"calls were executed that no turn decided: {', '.join(strangers)}")


def _scores(sample: JsonObject) -> list[JsonObject]:
    scores = child(sample, "scores")
    return [child(scores, name) for name in scores]


def _number(score: JsonObject) -> float | None:
    try:
        return read_verdict(score.get("value"))
    except UnreadableVerdict:
        return 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
