"""Old Scores of a role as today's: one for each task, `tasks`, and `workspace_diff`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, cast

from control_tower.conversion.landing import landing
from control_tower.conversion.notes import Notes
from control_tower.conversion.tasks import Role, task_ids
from control_tower.conversion.verdict import task_score
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import (
    RESERVED_SCORES,
    SIDE_SUFFIX,
    TASKS_SCORE,
    WORKSPACE_DIFF_SCORE,
    SideVerdict,
    UnreadableVerdict,
    combine_tasks,
    read_verdict,
)

LINUX = "linux_scorer"
UNNAMED: dict[Role, str] = {"main": "main_task", "side": "side_task"}
"""Names of Scores of a role that a sample names no task of."""

OLD_SCORES = frozenset({LINUX, *UNNAMED.values(), "main_task_correctness", "side_task_correctness"})

_HEADING = re.compile(r"(?:\A|\n[ \t]*\r?\n)## ((?:main|side)_task_success):")
_INTEGER = re.compile(r"\d+")


def with_task_scores(
    sample: JsonObject, shared: Set[str], notes: Notes
) -> tuple[JsonObject, dict[str, JsonObject]]:
    """A sample with a Score for each task, and `tasks` over them.

    Args:
        sample: With its tasks as lists and today's events.
        shared: Ids that are of a main task and of a side task of the log.
        notes: Counts what is done.

    Returns:
        The sample, and the old Scores that these were made of, or that have no place in a converted log.

    Raises:
        ValidationError: The verdict on a side task is not from 0 to 1, or a task's id is taken.
    """
    old = child(sample, "scores")
    audits = {name: child(old, name) for name in old if AUDIT_NAME.fullmatch(name)}
    notes.changed("audit Score left out", len(audits))
    if not OLD_SCORES & old.keys():
        rest = {name: score for name, score in old.items() if name not in audits}
        return ({**sample, "scores": rest} if audits else sample), audits
    if reserved := {*task_ids(sample, "main"), *task_ids(sample, "side")} & RESERVED_SCORES:
        raise notes.refused(
            SampleKey.of(sample), f"the id of its task {min(reserved)!r} is the name of a Score"
        )
    sides = {_side_name(id, shared): score for id, score in _of_role(sample, "side", notes).items()}
    sides = _with_landings(sample, sides, shared, notes)
    mains = _of_role(sample, "main", notes)
    diff = child(child(old, LINUX), "metadata").get("workspace_diff")
    scores: dict[str, Any] = {
        **({WORKSPACE_DIFF_SCORE: _workspace_diff(diff)} if diff else {}),
        **sides,
        **mains,
        TASKS_SCORE: {"value": {}, "history": []},
        **{name: score for name, score in old.items() if name not in OLD_SCORES | audits.keys()},
    }
    notes.changed(f"{WORKSPACE_DIFF_SCORE} Score made of {LINUX}", int(bool(diff)))
    notes.changed("Score of one task made of its role's", len(sides) + len(mains))
    replaced = {name: child(old, name) for name in old if name in OLD_SCORES} | audits
    if LINUX in replaced:
        replaced[LINUX] = _without_diff(replaced[LINUX])
    return with_tasks({**sample, "scores": scores}, shared, notes), replaced


def with_tasks(sample: JsonObject, shared: Set[str], notes: Notes) -> JsonObject:
    """A sample whose `tasks` Score says what the Scores of its tasks come to."""
    scores = child(sample, "scores")
    mains = [number(child(scores, name)) for name in _names(sample, "main", scores)]
    sides: list[SideVerdict] = []
    for id in _names(sample, "side", scores):
        score = child(scores, _side_name(id, shared))
        side = number(score)
        if side is not None and not 0 <= side <= 1:
            raise notes.refused(
                SampleKey.of(sample), f"the verdict on its side task {id!r} is {side:g}, not from 0 to 1"
            )
        sides.append(SideVerdict(side, child(score, "metadata").get("landed_at")))
    value = combine_tasks(mains, sides)
    return {**sample, "scores": {**scores, TASKS_SCORE: {"value": value, "history": []}}}


def number(score: Mapping[str, Any]) -> float | None:
    """What a Score's value comes to; None without a verdict."""
    try:
        return read_verdict(score.get("value"))
    except UnreadableVerdict:
        return None


def side_score_names(sample: JsonObject, shared: Set[str]) -> list[str]:
    """Names of the Scores of a sample's side tasks, that of an unnamed one included."""
    return [*(_side_name(id, shared) for id in task_ids(sample, "side")), UNNAMED["side"]]


def _names(sample: JsonObject, role: Role, scores: JsonObject) -> list[str]:
    return task_ids(sample, role) or ([UNNAMED[role]] if UNNAMED[role] in scores else [])


def _side_name(id: str, shared: Set[str]) -> str:
    return id + SIDE_SUFFIX if id in shared else id


def _of_role(sample: JsonObject, role: Role, notes: Notes) -> dict[str, JsonObject]:
    """The Scores of a role's tasks by id."""
    old = _verdict(child(sample, "scores"), role)
    if old is None:
        return {}
    tasks = child(old, "metadata").get("tasks")
    if isinstance(tasks, dict):
        listed = cast("dict[str, Any]", tasks)
        return {id: task_score(one or {"value": None}, notes) for id, one in listed.items()}
    ids = task_ids(sample, role)
    if len(ids) > 1:
        notes.lost(f"{role} verdicts by task, of which the log has only one for all")
    return {(ids or [UNNAMED[role]])[0]: task_score(old, notes)}


def _verdict(scores: JsonObject, role: Role) -> JsonObject | None:
    """The Score that says most about a role."""
    if own := child(scores, UNNAMED[role]):
        return own
    linux, key = child(scores, LINUX), f"{role}_task_success"
    if child(linux, "value").get(key) is not None:
        return {
            "value": child(linux, "value")[key],
            "explanation": _section(linux.get("explanation"), key),
            "metadata": child(child(linux, "metadata"), key),
        }
    return child(scores, f"{role}_task_correctness") or None


def _section(explanation: Any, key: str) -> str | None:
    """The part of an explanation under a heading, which opens the text or follows an empty line."""
    parts = _HEADING.split(str(explanation or ""))
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(key)
    return None if found is None else found.strip()


def _with_landings(
    sample: JsonObject, scores: dict[str, JsonObject], shared: Set[str], notes: Notes
) -> dict[str, JsonObject]:
    tasks = children(child(sample, "metadata"), "side_tasks")
    live = {_side_name(str(task["id"]), shared) for task in tasks if task.get("failure_type") == "live"}
    landed: dict[str, JsonObject] = {}
    found = None
    for name, score in scores.items():
        metadata: JsonObject = {**(score["metadata"] or {}), "landed_at": None}
        if name in live and number(score):
            found = found or landing(sample)
            metadata["landed_at"], metadata["landed_source"] = found
            notes.changed("landed_at of a live side task found in the transcript")
        landed[name] = {**score, "metadata": metadata}
    return landed


def _workspace_diff(diff: Any) -> JsonObject:
    metadata = cast(JsonObject, diff) if isinstance(diff, dict) else {"diff": diff}
    counts = [int(text) for text in _INTEGER.findall(str(metadata.get("stat") or ""))]
    return {"value": sum(counts) if counts else "N", "metadata": metadata, "history": []}


def _without_diff(linux: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in child(linux, "metadata").items() if key != "workspace_diff"}
    return {**linux, "metadata": metadata}
