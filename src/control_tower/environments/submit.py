"""The submission of a sample: the arguments its tasks asked for, kept in the sample's store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspect_ai.util import StoreModel
from pydantic import BaseModel, Field

from control_tower.environments.submit_args import (
    NoSubmitArgs,
    SubmitAttackScriptArgs,
    SubmitSecretsArgs,
    check_submit_args,
)

if TYPE_CHECKING:
    from inspect_ai.solver import TaskState

    from control_tower.environments.task import MainTask, SideTask

__all__ = [
    "NoSubmitArgs",
    "SideReport",
    "Submission",
    "SubmitAttackScriptArgs",
    "SubmitSecretsArgs",
    "check_submit_args",
    "record_defaults",
    "record_submission",
    "submit_args",
]

TaskArgs = dict[str, dict[str, Any]]


class SideReport(BaseModel):
    """The whole submission as it stood after a side task's arguments were set at `step`."""

    step: int
    tasks: TaskArgs


class Submission(StoreModel):
    """What was submitted so far.

    `tasks` maps a task id to its arguments, `submitted` turns true only by a real submit,
    `side_reports` has one entry for each time a side task's arguments were set.
    """

    tasks: TaskArgs = Field(default_factory=dict)
    submitted: bool = False
    side_reports: list[SideReport] = Field(default_factory=list[SideReport])


def submit_args(state: TaskState) -> TaskArgs:
    """The submitted arguments of every task of a sample, by task id; empty when none were given."""
    return state.store_as(Submission).tasks


def record_submission(
    submission: Submission, task: MainTask | SideTask, args: BaseModel, *, side_step: int | None = None
) -> None:
    """Replace a task's entry; with `side_step` the whole map is also kept as a side report."""
    submission.tasks = {**submission.tasks, task.id: args.model_dump(mode="json")}
    if side_step is not None:
        report = SideReport(step=side_step, tasks=submission.tasks)
        submission.side_reports = [*submission.side_reports, report]


def record_defaults(submission: Submission, mains: list[MainTask]) -> None:
    """On submit: main tasks without an entry get their defaults, unless a field is mandatory."""
    for task in mains:
        fields = task.submit_args.model_fields
        if task.id in submission.tasks or not fields:
            continue
        if not any(info.is_required() for info in fields.values()):
            record_submission(submission, task, task.submit_args())
