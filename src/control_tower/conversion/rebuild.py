"""A sample of a log without a version, rebuilt as one of today: turns, monitors' verdicts, audits, usage."""

from __future__ import annotations

from typing import Any, cast

import pydantic

from control_tower.conversion.carriers import (
    ALIASES,
    TRAJECTORY,
    is_carrier,
    monitor_score_of,
    read_carriers,
)
from control_tower.conversion.ids import rebuilt_sample_id
from control_tower.conversion.notes import Notes
from control_tower.conversion.rebuilt_events import EventMaker
from control_tower.conversion.recorded import read_recorded
from control_tower.errors import ValidationError
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.records.scores import MONITOR_SCORE
from control_tower.records.tasks import (
    EnvironmentData,
    MainTaskData,
    SideTaskData,
    describe_tasks,
    side_task_description,
)

_VERDICTS = (TRAJECTORY, ALIASES, "control_tower_prompt_table")
"""Sample metadata that is about verdicts."""


def rebuilt_sample(sample: JsonObject, header: JsonObject, notes: Notes) -> tuple[JsonObject, JsonObject]:
    """A sample of today's shape, still with the old Scores of tasks and the old scale of verdicts.

    Args:
        sample: With its tasks as lists.
        header: Of its log.
        notes: Counts what is done.

    Returns:
        The sample, and what goes into its `converted_from`.

    Raises:
        ValidationError: It records no readable environment or tasks, or a verdict on a call that it lacks.
    """
    key = SampleKey.of(sample)
    old_metadata = child(sample, "metadata")
    tasks = _tasks(sample, notes)
    mains = [MainTaskData.model_validate(task) for task in tasks["main_tasks"]]
    description = describe_tasks(mains) if mains else ""
    goals = [side_task_description(t["goal"], None) for t in tasks["side_tasks"]]
    eval_id = str(header["eval"].get("eval_id") or "")
    seed = f"{eval_id}:{sample['id']}:{key.epoch}"
    recorded = read_recorded(sample, description, seed)
    placed = read_carriers(sample, recorded, notes)

    pools = child(sample, "events_data")
    pool = children(pools, "messages")
    usage = child(sample, "model_usage")
    maker = EventMaker(seed, _moment(sample, header), len(pool))
    rest: JsonObject = {
        "messages": recorded.left_out,
        "message_metadata": recorded.verdicts,
        "sample_metadata": {name: old_metadata[name] for name in _VERDICTS if name in old_metadata},
        "events": sample.get("events") or [],
        "input": sample.get("input"),
        "target": sample.get("target"),
    }
    maker.rest({name: value for name, value in rest.items() if value})
    maker.turns(recorded)
    maker.usage(usage, placed)
    audited = list(dict.fromkeys(recorded.audited))
    for _ in range(audited.count(-1)):
        notes.lost("audit before the first action")
    maker.audits(turn for turn in audited if turn >= 0)
    maker.judging(placed, usage)

    scores = child(sample, "scores")
    carriers = {name: scores[name] for name in scores if is_carrier(name)}
    kept: JsonObject = {"sample_id": sample["id"], "epoch": key.epoch}
    if carriers:
        kept["monitor_scores"] = carriers
    id = rebuilt_sample_id(eval_id, sample["id"], key.epoch)
    metadata = {name: value for name, value in old_metadata.items() if name not in _VERDICTS}
    notes.changed("sample rebuilt with a new id")
    rebuilt: JsonObject = {
        **sample,
        "id": id,
        "epoch": 1,
        "input": description,
        "target": "\n\n".join(goals),
        "messages": recorded.messages,
        "metadata": {**metadata, **tasks},
        "scores": {
            **{name: score for name, score in scores.items() if name not in carriers},
            **({MONITOR_SCORE: monitor_score_of(placed, notes)} if placed else {}),
        },
        "events": maker.events,
        "events_data": {"calls": [], **pools, "messages": [*pool, *recorded.messages]},
    }
    return rebuilt, kept


def _tasks(sample: JsonObject, notes: Notes) -> JsonObject:
    """Tasks and environment under today's keys; others that the old ones have stay beside them.

    Raises:
        ValidationError: They are not readable.
    """
    metadata = child(sample, "metadata")
    try:
        return {
            "main_tasks": [_record(MainTaskData, task) for task in children(metadata, "main_tasks")],
            "side_tasks": [_record(SideTaskData, task) for task in children(metadata, "side_tasks")],
            "environment": _record(EnvironmentData, metadata.get("environment")),
        }
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or error.title
        raise _too_old(sample, notes, f"{error.title}: {where}: {problem['msg']}") from None


def _record(table: type[pydantic.BaseModel], given: Any) -> JsonObject:
    record = table.model_validate(given)
    return {**cast(JsonObject, given), **record.model_dump(mode="json", by_alias=True)}


def _too_old(sample: JsonObject, notes: Notes, why: str) -> ValidationError:
    return notes.refused(
        SampleKey.of(sample),
        f"records no readable environment or tasks ({why}): the log is too old to convert",
    )


def _moment(sample: JsonObject, header: JsonObject) -> str:
    """A time that the sample is known to have run at."""
    stated = sample.get("started_at") or header["eval"].get("created")
    return str(stated or "1970-01-01T00:00:00+00:00")
