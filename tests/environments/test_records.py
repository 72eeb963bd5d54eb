"""Task data of a sample's metadata, from authors' objects and from old logs."""

from typing import Any

import pytest
from inspect_ai.solver import TaskState
from pydantic import ValidationError

from control_tower.environments.task import MainTask, SideTask
from control_tower.records.tasks import (
    EnvironmentData,
    MainTaskData,
    SampleMetadata,
    SideTaskData,
    describe_tasks,
)

MAIN = {"id": "m", "environment": "s/e", "name": "M", "description": "work"}
SIDE = {"id": "s", "environment": "s/e", "name": "S", "failure_type": "live"}


def test_a_native_record_has_exactly_these_keys() -> None:
    main = MainTaskData.from_task(MainTask("m", "M", "e", "\nwork\n", setting_description="here"))
    assert list(main.model_dump()) == [
        "id",
        "environment",
        "name",
        "description",
        "codebase_name",
        "short_description",
        "task_category",
        "scorer_description",
        "notes",
        "coverage",
        "setup_script",
        "setting_description",
    ]
    assert main.description == main.task_description == "\nwork\n"
    assert main.setting_description == "here"
    side = SideTaskData.from_task(SideTask("s", "S", "e", "\nharm", None, "delayed", scoring_details="d"))
    assert side.task_description == "\nharm\n\nd"
    assert set(side.model_dump()) == {
        *("id", "environment", "name", "failure_type", "goal", "task_category", "not_high_stakes"),
        *("scoring_details", "short_description", "scorer_description", "attack_surface", "hint", "notes"),
        *("setup_script", "scorer_code_snapshot"),
    }


def test_defaults_and_old_labels() -> None:
    main = MainTaskData(**MAIN, task_category="Answer Question", unknown=1)  # type: ignore[arg-type]
    assert (main.task_category, main.codebase_name) == ("research", "default")
    with pytest.raises(ValidationError):
        MainTaskData(**MAIN, task_category="Cooking")  # type: ignore[arg-type]
    assert SideTaskData(**SIDE).goal == ""  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        SideTaskData.model_validate({**SIDE, "failure_type": None})


def test_environments_of_old_logs_are_read() -> None:
    old: dict[str, Any] = {
        "id": "e",
        "name": "E",
        "available_attack_surface": "surface",
        "tech_stack": "python, flask ,",
        "services": None,
        "short_description": None,
        "invariants": "dropped",
        "usage": "dropped",
    }
    data = EnvironmentData.model_validate(old)
    assert (data.display_name, data.attack_surface) == ("E", "surface")
    assert (data.tech_stack, data.services, data.short_description) == (["python", "flask"], [], "")
    assert data.side_task_goals is None and data.env_args == {} and data.agent_user == "root"


def test_sample_metadata_reads_lists_and_single_tasks() -> None:
    many = SampleMetadata.model_validate({"main_tasks": [MAIN], "side_tasks": [SIDE], "other": 1})
    one = SampleMetadata.model_validate({"main_task": MAIN, "side_task": SIDE})
    assert many == one
    assert one.main_task is not None and one.main_task.id == "m"
    assert one.side_task is not None and one.side_task.task_description == ""
    empty = SampleMetadata.model_validate({"main_tasks": [], "side_task": None})
    assert empty.main_task is None and empty.side_task is None and empty.environment is None


def test_a_state_gives_it() -> None:
    state = TaskState("m", 1, 1, "", [], metadata={"main_tasks": [MAIN]})  # type: ignore[arg-type]
    data = state.metadata_as(SampleMetadata)
    assert data.main_task is not None and data.main_task.description == "work"


def test_several_tasks_get_a_heading_each() -> None:
    main = MainTaskData(**MAIN)  # type: ignore[arg-type]
    assert describe_tasks([main]) == "work"
    assert describe_tasks([main, main.model_copy(update={"name": "N"})]) == "## M\n\nwork\n\n## N\n\nwork"
