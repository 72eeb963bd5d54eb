"""Tasks read from folders."""

import sys
from pathlib import Path

import pytest
from inspect_ai.util import registry_info

from control_tower.environments.loading import (
    ignore_task_folder,
    load_main_task_from_path,
    load_side_task_from_path,
)
from control_tower.environments.modules import load_module_from_path, register_setting_root
from control_tower.environments.space import UnknownTaskError, UnloadableTaskError, folder_task_space
from tests.environments.authoring import SCORER, write, write_env, write_main, write_side


def test_a_main_task_of_info_and_scorer_alone(tmp_path: Path) -> None:
    folder = write_main(
        tmp_path / "env",
        "build",
        info="""
        name: Build it
        task_category: Refactor Code
        description: {file: requirements.md}
        notes: "see $name\\\\nand ${coverage}, $unknown"
        coverage: all
        enabled_attack_surface: ignored
        """,
    )
    write(folder / "requirements.md", "Build.\n")
    write(folder / "setup.sh", "#!/bin/sh\ntrue\n")
    task = load_main_task_from_path(folder, "env")
    assert (task.id, task.name, task.environment, task.root) == ("build", "Build it", "env", folder)
    assert task.description == "Build.\n"
    assert task.task_category == "refactor"
    assert task.notes == "see Build it\nand all, $unknown"
    assert task.setup_script == "#!/bin/sh\ntrue\n"
    assert registry_info(task.scorer).name == "scorer"


def test_a_bug_report_is_made_of_test_output(tmp_path: Path) -> None:
    info = "description: {bug_fix_description: out.txt}\ntask_category: fix_bug\n"
    folder = write_main(tmp_path / "env", "repair", info=info)
    write(folder / "out.txt", "E  assert 1 == 2\n")
    description = load_main_task_from_path(folder).description
    assert "```\nE  assert 1 == 2\n```" in description
    assert description != "E  assert 1 == 2\n"


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("task_category: infra\n", "description is missing"),
        ("description: x\n", "task_category is missing"),
        ("description: x\ntask_category: [a]\n", "task_category is"),
        ("description: {file: none.md}\ntask_category: infra\n", "no file 'none.md'"),
        ("description: [x]\ntask_category: infra\n", "must be a text or a mapping"),
        ("- x\n", "must be a mapping"),
        ("a: [\n", "not readable as YAML"),
    ],
)
def test_faults_of_info_are_named(tmp_path: Path, info: str, message: str) -> None:
    folder = write_main(tmp_path / "env", "build", info=info)
    with pytest.raises(ValueError, match=message):
        load_main_task_from_path(folder)


def test_the_config_of_init_is_the_task_and_the_environment_is_stamped(tmp_path: Path) -> None:
    init = """
    from pathlib import Path
    from control_tower.environments.loading import make_main_task_from_path
    from .scorer import scorer
    config = make_main_task_from_path(Path(__file__).parent, scorer=scorer, files={"/app/x": "scorer.py"})
    """
    folder = write_main(tmp_path / "env", "build", init=init)
    assert load_main_task_from_path(folder).environment == "env"
    task = load_main_task_from_path(folder, "other")
    assert task.environment == "other"
    assert task.files == {"/app/x": "scorer.py"}


def test_the_goal_of_a_side_task_is_raw_and_relative_imports_work(tmp_path: Path) -> None:
    folder = write_side(tmp_path / "env", "leak", goal="\n\nLeak it. \n", options="probe=True, hint='h'")
    write(folder / "docs" / "scoring_details.md", "Details.")
    write(folder / "docs" / "scorer.md", "How.")
    write(folder / "info.yml", "name: Leak\nnotes: '{file: x}'\n")
    task = load_side_task_from_path(folder, "env")
    assert task.goal == "\n\nLeak it. \n"
    assert task.task_description == "\n\nLeak it. \n\n\nDetails."
    assert (task.name, task.notes, task.scorer_description) == ("Leak", "{file: x}", "How.")
    assert task.probe and task.hint == "h" and task.trajs_dir == folder / "trajs"


def test_a_side_task_needs_its_goal(tmp_path: Path) -> None:
    folder = write_side(tmp_path / "env", "leak")
    (folder / "docs" / "goal.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"goal\.md"):
        load_side_task_from_path(folder)


def test_tasks_load_from_relocated_folders(tmp_path: Path) -> None:
    folder = write_side(tmp_path / "anywhere" / "v-1", "leak-it")
    assert load_side_task_from_path(folder, "env").id == "leak-it"
    assert load_main_task_from_path(write_main(tmp_path / "else", "build"), "env").id == "build"


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (
            "from inspect_ai.scorer import *\n@scorer(metrics=[mean()])\ndef odd_name():\n"
            + "    async def s(state, target):\n        return Score(value=1)\n    return s\n",
            "odd_name",
        ),
        ("from inspect_ai.scorer import includes\nscorer = includes()\n", "includes"),
        (SCORER, "scorer"),
    ],
)
def test_the_scorer_of_a_file_is_found_whatever_it_is_called(
    tmp_path: Path, scorer: str, expected: str
) -> None:
    folder = write_main(tmp_path / "env", "build")
    write(folder / "scorer.py", scorer)
    assert registry_info(load_main_task_from_path(folder).scorer).name.rsplit("/", 1)[-1] == expected


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ("from inspect_ai.scorer import scorer, includes\n", "no scorer"),
        (
            "from control_tower.environments.scorer_utils import linux_scorer\n"
            "async def score(state, target): ...\na = linux_scorer(score)\nb = linux_scorer(score)\n",
            r"several scorers \(a, b\)",
        ),
    ],
)
def test_a_file_without_one_clear_scorer_is_refused(tmp_path: Path, scorer: str, message: str) -> None:
    folder = write_main(tmp_path / "env", "build")
    write(folder / "scorer.py", scorer)
    with pytest.raises(ValueError, match=message):
        load_main_task_from_path(folder)


def test_which_folders_are_no_tasks(tmp_path: Path) -> None:
    write(tmp_path / "file.md", "")
    write(tmp_path / "_shared" / "x.py", "")
    write(tmp_path / "new_idea" / "x.py", "")
    write(tmp_path / "other-idea" / "x.py", "")
    write(tmp_path / "noted" / "README.md", "")
    write(tmp_path / "cached" / "__pycache__" / "x.pyc", "")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "real" / "__init__.py", "")
    assert [path.name for path in tmp_path.iterdir() if not ignore_task_folder(path)] == ["real"]


def test_a_space_of_folders_leaves_broken_tasks_out_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = write_env(tmp_path / "env")
    write_main(env, "build")
    write_main(env, "broken", init="import a_package_that_is_not_there\n")
    write(env / "main_tasks" / "later_idea" / "x.md", "")
    write_side(env, "leak")
    space = folder_task_space(env, "env")
    assert [sorted(c.main_ids | c.side_ids) for c in space] == [["build"], ["build", "leak"]]
    assert "a_package_that_is_not_there" in caplog.text
    with pytest.raises(UnloadableTaskError, match=r"broken.*ModuleNotFoundError") as raised:
        space.get(main_id="broken")
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)
    with pytest.raises(UnknownTaskError, match="only a placeholder folder"):
        space.get(main_id="later_idea")
    with pytest.raises(UnknownTaskError, match="did you mean 'build'"):
        space.get(main_id="biuld")


def test_listing_ids_loads_no_task(tmp_path: Path) -> None:
    env = write_env(tmp_path / "env")
    marker = tmp_path / "loaded"
    write_main(env, "build", init=f"open({str(marker)!r}, 'w').close()\n")
    mains = folder_task_space(env, "env").mains()
    assert mains.ids == ("build",)  # type: ignore[attr-defined]
    assert not marker.exists()


def test_a_task_and_its_package_are_imported_once(tmp_path: Path) -> None:
    env = write_env(tmp_path / "my_env")
    write(env / "shared.py", "value = object()\n")
    side = write_side(env, "leak")
    write(side / "scorer.py", "from my_env.shared import value\n" + SCORER)
    register_setting_root(tmp_path)
    load_module_from_path(env)
    load_side_task_from_path(side)
    import my_env.shared  # type: ignore[import-not-found]

    loaded = sys.modules["my_env.side_tasks.leak.scorer"]
    assert loaded.value is my_env.shared.value
    assert sum(str(getattr(m, "__file__", "")) == str(env / "shared.py") for m in sys.modules.values()) == 1


def test_environments_of_one_name_in_two_settings_do_not_mix(tmp_path: Path) -> None:
    for setting in ("one", "two"):
        env = write_env(tmp_path / setting / "same_env")
        write(env / "shared.py", f"text = 'work of {setting}'\n")
        init = """
        from pathlib import Path
        from control_tower.environments.loading import make_main_task_from_path
        from same_env.shared import text
        from .scorer import scorer
        config = make_main_task_from_path(Path(__file__).parent, scorer=scorer)
        config.description = text
        """
        write_main(env, "build", init=init)
    texts: list[str] = []
    for setting in ("one", "two", "one"):
        register_setting_root(tmp_path / setting)
        folder = tmp_path / setting / "same_env" / "main_tasks" / "build"
        texts.append(load_main_task_from_path(folder).description)
    assert texts == ["work of one", "work of two", "work of one"]


def test_an_environment_named_like_an_installed_package_does_not_replace_it(tmp_path: Path) -> None:
    env = write_env(tmp_path / "click")
    import click

    assert load_side_task_from_path(write_side(env, "leak")).id == "leak"
    assert sys.modules["click"] is click
    env = write_env(tmp_path / "json")
    assert load_main_task_from_path(write_main(env, "build")).id == "build"
    assert hasattr(sys.modules["json"], "dumps")
