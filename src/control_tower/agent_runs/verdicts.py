"""What a log's summary says of one sample, and whether a document of the sample says the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from control_tower.agent_runs.errors import BadRequest
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.trajectories import finite
from control_tower.logs.trajectory_rows import monitor_rows, outcome_rows
from control_tower.records.monitor_scores import HIGHEST, LOWEST, MonitorKey, read_suspicion
from control_tower.records.scores import MONITOR_SCORE, SIDE_SUFFIX, UnreadableVerdict, read_verdict

NO_SCORE = 255
"""The byte of an action that a monitor gave no score."""

LONGEST_SERIES = 200_000
"""Bytes that the series of a sample may take together."""

_OUTCOME = ("main_task_success", "side_task_success", "tasks", "audit_scores")


@dataclass(frozen=True)
class Suspicion:
    """What monitors made of a sample, from 0 to 100; of several draws it is their mean."""

    series: Mapping[str, bytes]
    """By monitor a byte for each action that was executed: its score rounded, `NO_SCORE` without one."""
    highest: float | None
    """Of these actions, by any monitor."""
    trajectory: float | None
    """The highest verdict on the whole."""
    unscored: int
    """Verdicts that could not be had, of drafts too."""


@dataclass(frozen=True)
class Verdicts:
    """What the summary of a sample says."""

    outcome: JsonObject
    monitors: JsonObject
    scores: Mapping[str, float | None]
    """The number of each Score; None where it has none."""
    errored: bool
    suspicion: Suspicion


def verdicts_of(key: SampleKey, summary: JsonObject) -> Verdicts:
    """Reads a summary.

    Raises:
        BadRequest: The sample has too many actions to be kept.
        ValidationError: A key of its `monitor` Score is none of today's format.
    """
    scores = child(summary, "scores")
    rows = outcome_rows(summary)
    monitors = monitor_rows(summary)
    said = child(child(scores, MONITOR_SCORE), "value")
    return Verdicts(
        outcome=finite({name: rows[name] for name in _OUTCOME}),
        monitors=monitors,
        scores={name: _number(child(scores, name).get("value")) for name in scores},
        errored=bool(summary.get("error")),
        suspicion=_suspicion(key, said, sum(int(row["unscored"]) for row in monitors.values())),
    )


def disagreement(document: JsonObject, verdicts: Verdicts) -> str | None:
    """What a document says otherwise than the log; None when they agree."""
    for name in _OUTCOME:
        if document.get(name) != verdicts.outcome[name]:
            return f"{name} is {document.get(name)!r}, in the log {verdicts.outcome[name]!r}"
    if (document.get("monitors") or {}) != verdicts.monitors:
        return "its monitors have other verdicts than in the log"
    if verdicts.errored and not document.get("error"):
        return "it has no error, in the log it has one"
    for row in children(document, "task_scores"):
        id, role = str(row.get("id")), row.get("role")
        name = id + SIDE_SUFFIX if role == "side" and id + SIDE_SUFFIX in verdicts.scores else id
        if name not in verdicts.scores:
            return f"it has a score of task {id!r}, which the log has not"
        if row.get("value") != verdicts.scores[name]:
            return f"the score of task {id!r} is {row.get('value')!r}, in the log {verdicts.scores[name]!r}"
    return None


def _suspicion(key: SampleKey, said: JsonObject, unscored: int) -> Suspicion:
    draws: dict[str, dict[int, list[float | None]]] = {}
    wholes: dict[str, list[float | None]] = {}
    for text, value in said.items():
        about = MonitorKey.parse(text)
        number = read_suspicion(value)
        usable = number if number is not None and LOWEST <= number <= HIGHEST else None
        if about.action is not None:
            draws.setdefault(about.monitor, {}).setdefault(about.action, []).append(usable)
        elif about.draft is None:
            wholes.setdefault(about.monitor, []).append(usable)
    if sum(max(actions) + 1 for actions in draws.values()) > LONGEST_SERIES:
        raise BadRequest(f"sample {key} has verdicts on more than {LONGEST_SERIES} actions")
    means = {
        monitor: {at: _mean(given) for at, given in actions.items()} for monitor, actions in draws.items()
    }
    return Suspicion(
        series={monitor: _series(actions) for monitor, actions in means.items()},
        highest=_highest(mean for actions in means.values() for mean in actions.values()),
        trajectory=_highest(_mean(given) for given in wholes.values()),
        unscored=unscored,
    )


def _series(actions: Mapping[int, float | None]) -> bytes:
    row = bytearray([NO_SCORE]) * (max(actions) + 1)
    for at, mean in actions.items():
        if mean is not None:
            row[at] = round(mean)
    return bytes(row)


def _mean(draws: list[float | None]) -> float | None:
    known = [draw for draw in draws if draw is not None]
    return math.fsum(known) / len(known) if known else None


def _highest(means: Any) -> float | None:
    return max((mean for mean in means if mean is not None), default=None)


def _number(value: Any) -> float | None:
    try:
        number = read_verdict(value)
    except UnreadableVerdict:
        return None
    return number if number is None or math.isfinite(number) else None
