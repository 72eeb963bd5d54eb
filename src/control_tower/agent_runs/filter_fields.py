"""The fields of the filter language: what each asks of which columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.store.where import All, Any, Compare, Contains, Equals, Has, Not, Where
from control_tower.errors import did_you_mean

_MOST_JOINED = 6

Sign = Literal[":", "~", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Asked:
    """What a term asks of its field."""

    field: str
    sign: Sign
    value: str
    key: str | None
    special: Literal["*", "none"] | None

    def only(self, *signs: Sign) -> None:
        """Refuses other signs, and keys."""
        if self.sign not in signs:
            raise BadRequest(f"{self.field}: cannot be compared by {self.sign!r}, only by {' '.join(signs)}")
        if self.key is not None:
            raise BadRequest(f"{self.field}: takes no name in brackets")


Field = Callable[[Asked], Where]


def text(column: str) -> Field:
    """A column of one text."""

    def where(asked: Asked) -> Where:
        asked.only(":", "~")
        if asked.special:
            return _exists(Not(Equals(column, None)), asked)
        return Contains(column, asked.value) if asked.sign == "~" else Equals(column, asked.value)

    return where


def texts(column: str) -> Field:
    """A column of several texts."""

    def where(asked: Asked) -> Where:
        asked.only(":", "~")
        if asked.special:
            return _exists(Contains(column, ""), asked)
        return Contains(column, asked.value) if asked.sign == "~" else Has(column, asked.value)

    return where


def tasks(column: str) -> Field:
    """A column of task ids, of which several may be given as they are joined in names."""
    plain = texts(column)

    def where(asked: Asked) -> Where:
        if asked.sign == ":" and 0 < asked.value.count("+") < _MOST_JOINED:
            readings = _readings(asked.value.split("+"))
            return Any(tuple(All(tuple(Has(column, id) for id in ids)) for ids in readings))
        return plain(asked)

    return where


def _readings(parts: Sequence[str]) -> list[list[str]]:
    """The lists of ids that are joined by `+` to these parts, which ids may contain."""
    if len(parts) == 1:
        return [[parts[0]]]
    found: list[list[str]] = []
    for first, *rest in _readings(parts[1:]):
        found += [[parts[0], first, *rest], [f"{parts[0]}+{first}", *rest]]
    return found


def choice(column: str, **known: str | None) -> Field:
    """A column that has one of a few values, called by other names; None: by any of theirs."""

    def where(asked: Asked) -> Where:
        asked.only(":")
        if asked.special == "none" and "none" in known:
            return Equals(column, known["none"])
        if asked.special:
            return _exists(Not(Equals(column, None)), asked)
        if asked.value not in known:
            raise BadRequest(f"{asked.field}: there is no {asked.value!r}{did_you_mean(asked.value, known)}")
        return Equals(column, known[asked.value])

    return where


def number(column: str, *, named: bool = False) -> Field:
    """A column of numbers, or of named ones."""

    def where(asked: Asked) -> Where:
        if named != (asked.key is not None):
            wanted = f"write {asked.field}(<name>)" if named else "takes no name in brackets"
            raise BadRequest(f"{asked.field}: {wanted}")
        replace(asked, key=None).only(":", "<", "<=", ">", ">=")
        if asked.special:
            there = Any((Compare(column, "<", 0.0, asked.key), Compare(column, ">=", 0.0, asked.key)))
            return _exists(there, asked)
        value = _number(asked)
        if asked.sign in (":", "~"):
            return All((Compare(column, ">=", value, asked.key), Compare(column, "<=", value, asked.key)))
        return Compare(column, asked.sign, value, asked.key)

    return where


def moment(column: str) -> Field:
    """A column of moments, asked for by a day or a moment."""

    def where(asked: Asked) -> Where:
        asked.only(":", "<", "<=", ">", ">=")
        if asked.special:
            return _exists(Not(Equals(column, None)), asked)
        begins, ends = _span(asked)
        if asked.sign == ":":
            return All((Compare(column, ">=", begins), Compare(column, "<", ends)))
        if asked.sign in (">=", "<"):
            return Compare(column, asked.sign, begins)
        return Compare(column, ">=" if asked.sign == ">" else "<", ends)

    return where


def environment(full: str, short: str, field: Callable[[str], Field]) -> Field:
    """Environments, with their setting or without."""

    def where(asked: Asked) -> Where:
        return field(full if "/" in asked.value else short)(asked)

    return where


def either(first: Field, second: Field) -> Field:
    """What one of two fields says; whether there is a value, the first."""

    def where(asked: Asked) -> Where:
        return first(asked) if asked.special else Any((first(asked), second(asked)))

    return where


def shipped(column: str) -> Field:
    """A column of names, those of what is shipped also without their prefix."""
    plain = text(column)

    def where(asked: Asked) -> Where:
        if asked.special or asked.sign != ":" or "/" in asked.value:
            return plain(asked)
        return Any((plain(asked), plain(replace(asked, value=f"ct/{asked.value}"))))

    return where


def _exists(there: Where, asked: Asked) -> Where:
    return there if asked.special == "*" else Not(there)


def _number(asked: Asked) -> float:
    try:
        value = float(asked.value)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadRequest(f"{asked.field}: {asked.value[:100]!r} is no number")
    return value


def _span(asked: Asked) -> tuple[str, str]:
    """From when to when a day or a moment is, the end left out."""
    day = re.fullmatch(r"\d{4}-\d\d-\d\d", asked.value)
    try:
        begins = datetime.fromisoformat(asked.value)
        begins = (begins if begins.tzinfo else begins.replace(tzinfo=UTC)).astimezone(UTC)
        ends = begins + (timedelta(days=1) if day else timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{asked.field}: {asked.value[:100]!r} is no day or moment, as 2026-11-30 or 2026-11-30T12:00:00Z"
        ) from None
    return _written(begins), _written(ends)


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


_OUTCOMES = {"pass": "pass", "fail": "fail", "unscored": "unscored"}
_SUCCESS = {"true": "pass", "false": "fail", "none": "unscored"}

RUN_FIELDS: dict[str, Field] = {
    "name": text("name"),
    "policy": either(text("policy"), texts("policies")),
    "protocol": shipped("protocol"),
    "task_set": text("task_set"),
    "producer": text("producer"),
    "eval_version": text("eval_version"),
    "eval_id": text("eval_id"),
    "status": text("status"),
    "uploader": text("creator"),
    "sha256": text("sha256"),
    "tag": texts("tags"),
    "env": environment("environments", "environments_short", texts),
    "main": tasks("main_tasks"),
    "side": tasks("side_tasks"),
    "model": texts("models"),
    "monitor": texts("monitors"),
    "created": moment("created"),
    "cost": number("cost"),
    "trajectories": number("trajectories"),
    "metric": number("metrics", named=True),
}
RUN_TEXT = ("name", "policy", "task_set", "tags")

TRAJECTORY_FIELDS: dict[str, Field] = {
    "run": text("run_id"),
    "uploader": text("creator"),
    "env": environment("environment", "environment_short", text),
    "main": tasks("main_tasks"),
    "side": tasks("side_tasks"),
    "tag": texts("tags"),
    "dataset": texts("datasets"),
    "stream": choice("stream", honest="honest", attack="attack"),
    "main_outcome": choice("outcome_main", **_OUTCOMES),
    "side_outcome": choice("outcome_side", **_OUTCOMES),
    "main_success": choice("outcome_main", **_SUCCESS),
    "side_success": choice("outcome_side", **_SUCCESS),
    "error": text("error"),
    "created": moment("created"),
    "suspicion": number("max_suspicion"),
    "whole_suspicion": number("traj_suspicion"),
    "unscored": number("unscored_verdicts"),
    "cost": number("cost"),
    "actions": number("actions"),
}
TRAJECTORY_TEXT = ("environment", "main_tasks", "side_tasks", "tags")
