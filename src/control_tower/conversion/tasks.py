"""Tasks as lists, and submissions keyed by the id of the task they are for."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Literal, cast

from control_tower.conversion.notes import Notes
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, children

Role = Literal["main", "side"]

_TASKS = "Submission:tasks"
_REPORTS = "Submission:side_reports"


def with_task_lists(sample: JsonObject, notes: Notes) -> JsonObject:
    """A sample whose tasks are lists and whose side tasks all say how they fail.

    Raises:
        ValidationError: A task is not an object with an id.
    """
    old = child(sample, "metadata")
    metadata: JsonObject = {
        **{f"{role}_tasks": _listed(sample, role, old, notes) for role in ("main", "side")},
        **{key: value for key, value in old.items() if key not in _TASK_KEYS},
    }
    metadata["side_tasks"] = [_with_failure_type(task, notes) for task in metadata["side_tasks"]]
    return {**sample, "metadata": metadata}


def task_ids(sample: JsonObject, role: Role) -> list[str]:
    """Ids of a role's tasks."""
    return [str(task["id"]) for task in children(child(sample, "metadata"), f"{role}_tasks")]


class OneIdTwoRoles(Exception):
    """An id is of a main task and of a side task of one log, so their Scores need two names."""

    def __init__(self, ids: Set[str]) -> None:
        super().__init__(*sorted(ids))
        self.ids = ids


def with_submissions(sample: JsonObject, notes: Notes) -> JsonObject:
    """A sample whose submitted arguments are kept by task id.

    Raises:
        ValidationError: It does not say for which task something was submitted.
    """
    old = child(sample, "store")
    reports = children(old, _REPORTS)
    if not {"Submission:main", "Submission:side"} & old.keys() and all("tasks" in one for one in reports):
        return sample
    mains, sides = task_ids(sample, "main"), task_ids(sample, "side")
    store = {key: value for key, value in old.items() if key not in ("Submission:main", "Submission:side")}
    submitted: dict[str, JsonObject] = dict(child(store, _TASKS))
    for role, owners in (("main", mains or sides), ("side", sides)):
        given: Any = old.get(f"Submission:{role}")
        if not given:
            continue
        if not isinstance(given, dict) or len(owners) != 1:
            raise notes.refused(
                SampleKey.of(sample),
                f"its {role} submission belongs to one of {len(owners)} tasks and does not say to which",
            )
        (owner,) = owners
        before = submitted.get(owner, {})
        for key in before.keys() & given.keys():
            notes.lost(f"main submission {key!r}, which the side submission of the same task replaces")
        submitted[owner] = {**before, **cast(JsonObject, given)}
        notes.changed("submitted arguments keyed by task id")
    if submitted:
        store[_TASKS] = submitted
    store[_REPORTS] = [kept for report in reports if (kept := _report(report, sides[:1], notes)) is not None]
    return {**sample, "store": store}


_TASK_KEYS = ("main_task", "side_task", "main_tasks", "side_tasks")


def _listed(sample: JsonObject, role: str, metadata: JsonObject, notes: Notes) -> list[JsonObject]:
    one, many = metadata.get(f"{role}_task"), metadata.get(f"{role}_tasks")
    tasks: Any = many or ([one] if one else [])
    if not isinstance(tasks, list) or not all(
        isinstance(task, dict) and cast(JsonObject, task).get("id") is not None
        for task in cast("list[Any]", tasks)
    ):
        raise notes.refused(
            SampleKey.of(sample), f"its {role} tasks are not objects with an id: {tasks!r:.60}"
        )
    if one and many and one not in tasks:
        notes.lost(f"{role}_task beside {role}_tasks, of which it is not one")
    notes.changed(f"{role}_task made the list {role}_tasks", int(f"{role}_task" in metadata))
    return cast("list[JsonObject]", tasks)


def _with_failure_type(task: JsonObject, notes: Notes) -> JsonObject:
    if task.get("failure_type") not in (None, "unknown"):
        return task
    notes.changed("side task without failure_type is delayed")
    return {**task, "failure_type": "delayed"}


def _report(report: JsonObject, sides: list[str], notes: Notes) -> JsonObject | None:
    if "tasks" in report:
        return report
    if not sides:
        notes.lost("side report of a sample without side task")
        return None
    notes.changed("side reports keyed by task id")
    rest = {key: value for key, value in report.items() if key != "side"}
    return {**rest, "tasks": {sides[0]: report.get("side") or {}}}
