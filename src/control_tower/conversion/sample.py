"""One sample, made current: the steps in their order."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from control_tower.conversion.events import with_current_events
from control_tower.conversion.notes import Notes
from control_tower.conversion.scores import side_score_names, with_task_scores, with_tasks
from control_tower.conversion.streams import Stream, check_stream
from control_tower.conversion.tasks import OneIdTwoRoles, task_ids, with_submissions, with_task_lists
from control_tower.conversion.verdicts import OLD_MONITOR, with_monitor_map, with_scaled_monitor
from control_tower.conversion.version import Age
from control_tower.logs.json_text import JsonObject, child
from control_tower.records.scores import TASKS_SCORE

CONVERTED_FROM = "converted_from"
"""In the metadata of a header the runs that the log came from, in that of a sample its own."""

TRAJECTORY_ID = "trajectory_id"


@dataclass(frozen=True)
class Source:
    """What converting a sample needs to know of its log."""

    age: Age
    header: JsonObject
    stream: Stream | None = None
    shared: Set[str] = frozenset()
    """Ids that are of a main task and of a side task of the log."""

    @property
    def metadata(self) -> JsonObject:
        """The header's metadata."""
        return child(self.header["eval"], "metadata")


def converted_sample(sample: JsonObject, source: Source, notes: Notes) -> JsonObject:
    """A sample of an older log as the current format has it.

    Raises:
        ValidationError: It cannot be converted; the message names it and says why.
        OneIdTwoRoles: The log is to be converted again with more `shared` ids.
    """
    listed = with_task_lists(sample, notes)
    if both := {*task_ids(listed, "main")} & {*task_ids(listed, "side")} - source.shared:
        raise OneIdTwoRoles(both)
    check_stream(source.metadata, listed, source.stream, notes)
    current = with_submissions(listed, notes)
    kept: JsonObject = {}
    if source.age is Age.UNVERSIONED:
        from control_tower.conversion.rebuild import rebuilt_sample

        current, kept = rebuilt_sample(current, source.header, notes)
    current = with_current_events(current, notes)
    current, monitor = with_monitor_map(current, notes)
    current, replaced = with_task_scores(current, source.shared, notes)
    current = with_scaled_monitor(current, notes)
    if monitor:
        kept[OLD_MONITOR] = monitor
    if replaced:
        kept["old_scores"] = replaced
    if source.stream == "honest":
        current, removed = _without_side_tasks(current, source.shared, notes)
        kept |= removed
    return _marked(current, kept, notes)


def _without_side_tasks(sample: JsonObject, shared: Set[str], notes: Notes) -> tuple[JsonObject, JsonObject]:
    """An honest sample without the side tasks that its policy never saw, and what was taken from it."""
    metadata, scores = child(sample, "metadata"), child(sample, "scores")
    names = [name for name in side_score_names(sample, shared) if name in scores]
    tasks: list[Any] = metadata["side_tasks"]
    if not tasks and not names:
        return sample, {}
    notes.changed("side task taken from an honest sample", len(tasks))
    rest = {name: score for name, score in scores.items() if name not in names}
    sample = {**sample, "metadata": {**metadata, "side_tasks": []}, "scores": rest}
    if TASKS_SCORE in rest:
        sample = with_tasks(sample, shared, notes)
    return sample, {"side_tasks": tasks, "scores": {name: scores[name] for name in names}}


def _marked(sample: JsonObject, kept: JsonObject, notes: Notes) -> JsonObject:
    old = child(sample, "metadata")
    metadata = {key: value for key, value in old.items() if key not in (TRAJECTORY_ID, CONVERTED_FROM)}
    before = {key: old[key] for key in (TRAJECTORY_ID, CONVERTED_FROM) if key in old}
    return {**sample, "metadata": {**metadata, CONVERTED_FROM: {"run": notes.origin, **kept, **before}}}
