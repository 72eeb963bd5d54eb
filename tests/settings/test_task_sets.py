"""Task sets: found by name or path, read strictly."""

from pathlib import Path

import pytest

from control_tower.errors import UsageError
from control_tower.settings.task_sets import (
    TaskRecord,
    load_task_set,
    merge_records,
    read_task_file,
    shipped_task_sets,
)
from tests.environments.authoring import write, write_setting


def test_records_name_environment_and_tasks(tmp_path: Path) -> None:
    file = write(
        tmp_path / "set.jsonl",
        """
        {"env": "gitea-platform", "main_task": "a"}

        {"env": "e", "main_task": ["a", "b"], "side_task": "s"}
        {"env": "e", "side_task": ["s"]}
        """,
    )
    assert read_task_file(file) == (
        TaskRecord("gitea-platform", ("a",)),
        TaskRecord("e", ("a", "b"), ("s",)),
        TaskRecord("e", (), ("s",)),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "set.jsonl:1: not JSON"),
        ("[]", "must be an object"),
        ('{"env": "e", "main_tsk": "a"}', "unknown key 'main_tsk'; did you mean 'main_task'"),
        ('{"main_task": "a"}', "env must name"),
        ('{"env": "", "main_task": "a"}', "env must name"),
        ('{"env": "e"}', "needs main_task or side_task"),
        ('{"env": "e", "main_task": []}', "non-empty list"),
        ('{"env": "e", "main_task": ""}', "non-empty list"),
        ('{"env": "e", "main_task": ["a", 3]}', "non-empty list"),
        ('{"env": "e", "main_task": null}', "non-empty list"),
        (
            '{"env": "e", "main_task": ["a", "b"]}\n{"env": "e", "main_task": ["b", "a"]}',
            "same combination as line 1",
        ),
        ("", "has no records"),
    ],
)
def test_faulty_files_are_usage_errors(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_task_file(write(tmp_path / "set.jsonl", line))


def test_sets_are_found_by_name_then_path(settings_folder: Path, tmp_path: Path) -> None:
    one, two = (write_setting(settings_folder, name, f"env_of_{name}") for name in ("one", "two"))
    record = '{"env": "e", "main_task": "%s"}\n'
    write(one / "task_sets" / "simple.jsonl", record % "from_one")
    write(two / "task_sets" / "simple.jsonl", record % "from_two")
    write(two / "task_sets" / "medium.jsonl", record % "m")
    write(two / "task_sets" / "_hidden.jsonl", record % "h")
    own = write(tmp_path / "own.jsonl", record % "o")
    simple = load_task_set("simple")
    assert (simple.setting, simple.name, simple.records) == (
        "one",
        "simple",
        (TaskRecord("e", ("from_one",)),),
    )
    assert load_task_set("medium.jsonl").setting == "two"
    assert load_task_set(str(own)).setting is None
    assert [file.stem for file, _ in shipped_task_sets()] == ["simple", "medium", "simple"]
    with pytest.raises(UsageError, match="no task set or file 'simpel'; did you mean 'simple'"):
        load_task_set("simpel")


def test_the_first_occurrence_wins_across_files() -> None:
    a, b, c = (TaskRecord("e", (name,)) for name in "abc")
    assert merge_records([[a, b], [b, c, a]]) == [a, b, c]
