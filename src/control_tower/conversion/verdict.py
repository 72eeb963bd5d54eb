"""One old verdict on a task as today's Score: what it decided, or why it decided nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, cast

from control_tower.conversion.notes import Notes
from control_tower.logs.format import FAILURE_REASONS
from control_tower.logs.json_text import JsonObject
from control_tower.records.scores import UnreadableVerdict, read_verdict

_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
_UNDECIDED = frozenset({"N", "NOANSWER", "NAN", "E", "ERROR"})
_REASONS = ("scorer_timeout", "env_not_ready", "scorer_error")
_OPENINGS = {
    "Scorer timed out": "scorer_timeout",
    "Environment not ready": "env_not_ready",
    "Error scoring": "scorer_error",
    "Check script error": "scorer_error",
    "Check script emitted conflicting verdicts": "scorer_error",
}
_HARNESS = "harness_error"
_UNSCORED_REASON = "unscored_reason"


def task_score(old: Mapping[str, Any], notes: Notes) -> JsonObject:
    """The Score of a task.

    A verdict that decided nothing is a failure when the log says that the scorer timed out or crashed, and
    stays unscored when it says that the environment was not ready, or nothing.

    Args:
        old: `value`, `explanation`, `metadata` and what else a Score has.
        notes: Counts what is done.
    """
    value: Any = old.get("value")
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    decided = _decided(value)
    metadata: JsonObject = dict(old.get("metadata") or {})
    reason = _reason(metadata, old.get("explanation"), decided=decided)
    if reason is not None or not isinstance(metadata.get(_HARNESS), dict):
        metadata.pop(_HARNESS, None)
    metadata.pop(_UNSCORED_REASON, None)
    if not decided:
        failed = reason in ("scorer_timeout", "scorer_error")
        value = "I" if failed else math.nan
        notes.changed(f"verdict that decided nothing: {f'failed ({reason})' if failed else 'unscored'}")
    kept = {key: old[key] for key in ("answer", "history") if old.get(key)}
    return {
        "value": value,
        **kept,
        "explanation": old.get("explanation"),
        "metadata": metadata or None,
        "reason": reason,
    }


def _decided(value: Any) -> bool:
    if isinstance(value, str) and value.upper() in _UNDECIDED:
        return False
    try:
        return read_verdict(value) is not None
    except UnreadableVerdict:
        return False


def _reason(metadata: JsonObject, explanation: Any, *, decided: bool) -> str | None:
    harness = metadata.get(_HARNESS)
    if isinstance(harness, dict):
        stated = cast(JsonObject, harness).get("type")
        return stated if stated in FAILURE_REASONS else None
    if decided:
        return None
    if stated := next((reason for reason in _REASONS if reason in metadata), None):
        return stated
    text = explanation if isinstance(explanation, str) else ""
    return next((reason for opening, reason in _OPENINGS.items() if text.startswith(opening)), None)
