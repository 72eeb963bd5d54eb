"""What became of one sample, as the entries of its document: scores, errors, verdicts, time, money, calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from control_tower.logs.committed import CommittedCall
from control_tower.logs.costs import sample_costs, total
from control_tower.logs.events import resolved, seconds
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.usage import added, usage_of
from control_tower.models.cost import NO_ROLE, Cost
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.monitor_scores import MonitorKey, read_suspicion
from control_tower.records.scores import (
    MONITOR_SCORE,
    SIDE_SUFFIX,
    TASKS_SCORE,
    UnreadableVerdict,
    read_verdict,
)

OUTPUT_LENGTH = 20
"""Characters of a call's result that a document shows."""

_FAULTS = (
    "scorer_timeout",
    "env_not_ready",
    "scorer_error",
    "script_timeout",
    "script_exit",
    "script_conflict",
    "script_no_verdict",
)
"""Why a task has no verdict of its scorer, the most severe first."""


def outcome_rows(sample: JsonObject) -> JsonObject:
    """`main_task_success`, `side_task_success`, `task_scores`, `tasks`, `audit_scores`, `error`."""
    scores = child(sample, "scores")
    tasks = child(child(scores, TASKS_SCORE), "value")
    audits = {name: child(scores, name).get("value") for name in scores if AUDIT_NAME.fullmatch(name)}
    return {
        "main_task_success": _success(tasks.get("main")),
        "side_task_success": _success(tasks.get("side")),
        "task_scores": [_task_row(*found) for found in _task_scores(sample)],
        "tasks": tasks or None,
        "audit_scores": audits or None,
        "error": sample_error(sample),
    }


def sample_error(sample: JsonObject) -> JsonObject | None:
    """Why a sample has no result: its own error, else the most severe reason that a task has no verdict.

    Main tasks do not count where there are side tasks.
    """
    metadata = child(sample, "metadata")
    if error := sample.get("error"):
        message = child(sample, "error").get("message") or str(error)
        kind = metadata.get("error_type")
        return {"message": message, "error_type": kind if isinstance(kind, str) else "eval_error"}
    role = "side" if children(metadata, "side_tasks") else "main"
    found = [
        (_severity(fault), fault, score)
        for _, of_role, score in _task_scores(sample)
        if of_role == role and (fault := _fault(score))
    ]
    if not found:
        return None
    _, fault, score = min(found, key=lambda each: each[0])
    lines = str(score.get("explanation") or "").splitlines()
    return {"message": lines[0] if lines else fault, "error_type": fault if fault in _FAULTS else "unknown"}


def monitor_rows(sample: JsonObject) -> JsonObject:
    """Of each monitor how many verdicts it could not give, and the highest that it gave.

    Raises:
        ValidationError: A key of the `monitor` Score is none of today's format.
    """
    rows: JsonObject = {}
    for key, verdict in child(child(child(sample, "scores"), MONITOR_SCORE), "value").items():
        row = rows.setdefault(MonitorKey.parse(key).monitor, {"unscored": 0})
        number = read_suspicion(verdict)
        if number is None or number < 0:
            row["unscored"] += 1
        else:
            row["max"] = max(number, row.get("max", number))
    return rows


def timing_row(sample: JsonObject, header_metadata: JsonObject) -> JsonObject:
    """When the sample was played and how long each part took, in whole milliseconds; moments in Unix time."""
    events = children(sample, "events")
    began = [moment for event in events if (moment := seconds(event)) is not None]
    ended = [moment for event in events if (moment := seconds(event, "completed")) is not None]
    run = seconds(header_metadata, "script_start_time")
    first = min(began, default=seconds(sample, "started_at"))
    last = max([*began, *ended], default=seconds(sample, "completed_at"))
    working = sample.get("working_time")
    if working is None and first is not None and last is not None:
        working = last - first
    row = {
        "run_started_at": run,
        "time_started": first,
        "time_completed": last,
        "time_to_start": None if first is None or run is None else first - run,
        "time_to_run": working,
    }
    return {key: round(value * 1000) for key, value in row.items() if value is not None} | _scorers(events)


def cost_rows(sample: JsonObject) -> JsonObject:
    """`cost`, `cost_by_role`, `token_usage` and `models`: what was used, and in USD what is known of it."""
    costs = sample_costs(sample)
    usage = usage_of(sample, "model_usage")
    known = total(costs).usd
    tokens = added({"": counts} for counts in usage.values()).get("", {})
    tokens.pop("total_cost", None)
    cost = tokens if known is None else {**tokens, "total_cost": round(known, 6)}
    by_role = {
        "null" if role == NO_ROLE else role: {
            "total_usd": _usd(sum(models.values(), Cost())),
            "by_model": {model: _usd(cost) for model, cost in models.items()},
        }
        for role, models in costs.items()
    }
    return {
        "cost": cost or None,
        "cost_by_role": by_role or None,
        "token_usage": child(sample, "model_usage") or None,
        "models": sorted(usage) or None,
    }


def call_rows(sample: JsonObject, calls: Sequence[CommittedCall]) -> JsonObject:
    """`number_of_actions` and `action_summaries`: each committed call with the start of its result."""
    texts = child(sample, "attachments")
    summaries: list[JsonObject] = []
    for index, call in enumerate(calls):
        row: JsonObject = {"function": call.function, "index": index}
        if call.result is not None:
            row["output"] = _text(resolved(call.result.get("content"), texts))[:OUTPUT_LENGTH]
        summaries.append(row)
    return {"number_of_actions": len(calls), "action_summaries": summaries}


def _success(value: Any) -> bool | None:
    number = _number(value)
    return None if number is None else number == 1.0


def _number(value: Any) -> float | None:
    """A verdict's number; None where there is none, or it cannot be read."""
    try:
        return read_verdict(value)
    except UnreadableVerdict:
        return None


def _task_scores(sample: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    """Id, role and Score of the tasks that have one, main tasks first."""
    scores, metadata = child(sample, "scores"), child(sample, "metadata")
    for role in ("main", "side"):
        for task in children(metadata, f"{role}_tasks"):
            id = str(task.get("id"))
            score = child(scores, id)
            if role == "side":
                score = child(scores, id + SIDE_SUFFIX) or score
            if score:
                yield id, role, score


def _task_row(id: str, role: str, score: JsonObject) -> JsonObject:
    row: JsonObject = {"id": id, "role": role, "value": _number(score.get("value"))}
    if role == "side":
        row["landed_at"] = child(score, "metadata").get("landed_at")
    return {**row, "reason": score["reason"]} if score.get("reason") else row


def _fault(score: JsonObject) -> str | None:
    reason = score.get("reason")
    fault = reason if reason in _FAULTS[:3] else child(score, "metadata").get("fault")
    return str(fault) if fault else None


def _severity(fault: str) -> int:
    return _FAULTS.index(fault) if fault in _FAULTS else len(_FAULTS)


def _scorers(events: list[JsonObject]) -> JsonObject:
    begun: dict[str, tuple[str, float]] = {}
    took: dict[str, int] = {}
    for event in events:
        moment, span = seconds(event), str(event.get("id"))
        if event.get("event") == "span_begin" and event.get("type") == "scorer" and moment is not None:
            begun[span] = str(event.get("name")), moment
        elif event.get("event") == "span_end" and span in begun and moment is not None:
            name, start = begun.pop(span)
            took[name] = took.get(name, 0) + round((moment - start) * 1000)
    return {"scorer_timings": took} if took else {}


def _usd(cost: Cost) -> float | None:
    return None if cost.incomplete or cost.usd is None else round(cost.usd, 6)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in children({"parts": content}, "parts"))
    return "" if content is None else str(content)
