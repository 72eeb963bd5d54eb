"""What a task accepts, and what it refuses with words the author can act on."""

import asyncio
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from inspect_ai.scorer import CORRECT, Score, includes, mean, scorer
from inspect_ai.util import registry_info
from pydantic import BaseModel

from control_tower.environments.runtime_vars import RuntimeVar
from control_tower.environments.scorer_utils import dummy_scorer, linux_scorer
from control_tower.environments.submit import NoSubmitArgs
from control_tower.environments.task import FinalDiff, MainTask, SideTask, TaskCategory


async def plain_scorer(state: Any, target: Any) -> Score:
    return Score(value=CORRECT, explanation="plain")


@linux_scorer
async def decorated_scorer(state: Any, target: Any) -> Score:
    return Score(value=CORRECT, explanation="decorated")


@scorer(metrics=[mean()])
def factory_scorer():
    async def score(state: Any, target: Any) -> Score:
        return Score(value=CORRECT, explanation="factory")

    return score


def undecorated_factory():
    return plain_scorer


def main_task(**fields: Any) -> MainTask:
    given = {"id": "m", "name": "M", "environment": "e", "description": "work", "scorer": plain_scorer}
    return MainTask(**(given | fields))


def side_task(**fields: Any) -> SideTask:
    given = {
        "id": "s",
        "name": "S",
        "environment": "e",
        "goal": "harm",
        "scorer": plain_scorer,
        "failure_type": "live",
    }
    return SideTask(**(given | fields))


@pytest.mark.parametrize(
    ("given", "name", "explanation"),
    [
        (plain_scorer, "plain_scorer", "plain"),
        (decorated_scorer, "decorated_scorer", "decorated"),
        (factory_scorer, "factory_scorer", "factory"),
        (factory_scorer(), "factory_scorer", "factory"),
        (undecorated_factory, "undecorated_factory", "plain"),
    ],
)
def test_every_kind_of_scorer_becomes_an_inspect_scorer(given: Any, name: str, explanation: str) -> None:
    for task in (main_task(scorer=given), side_task(scorer=given)):
        assert task.scorer is not None
        info = registry_info(task.scorer)
        assert (info.type, info.name) == ("scorer", name)
        assert "metrics" in info.metadata
        score = asyncio.run(task.scorer(None, None))  # type: ignore[arg-type]
        assert score is not None and score.explanation == explanation


def test_a_linux_scorer_says_what_it_is() -> None:
    assert decorated_scorer.is_scorer  # type: ignore[attr-defined]


def test_a_replaced_task_keeps_its_scorer() -> None:
    task = main_task()
    assert dataclasses.replace(task, name="other").scorer is task.scorer


def test_inspects_own_scorers_are_taken_as_they_are() -> None:
    given = includes()
    assert main_task(scorer=given).scorer is given


def test_a_task_with_the_dummy_scorer_has_no_scorer() -> None:
    assert main_task(scorer=dummy_scorer).scorer is None
    assert side_task(scorer=dummy_scorer).scorer is None


@pytest.mark.parametrize("given", [3, "scorer", lambda: 3])
def test_something_else_is_no_scorer(given: Any) -> None:
    with pytest.raises(ValueError, match="main task 'm': the scorer must be"):
        main_task(scorer=given)


BadNames = type("BadNames", (BaseModel,), {"__annotations__": {"class": str}})
NoSchema = type(
    "NoSchema",
    (BaseModel,),
    {"__annotations__": {"f": type(lambda: 0)}, "model_config": {"arbitrary_types_allowed": True}},
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"description": " \n"}, "description is empty"),
        ({"setup_script": "echo hi"}, "shebang"),
        ({"task_category": "cooking"}, "must be one of add_feature"),
        ({"submit_args": int}, "BaseModel class"),
        ({"submit_args": BadNames}, "not plain names: class"),
        ({"submit_args": NoSchema}, "no JSON schema"),
    ],
)
def test_faults_of_main_tasks(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        main_task(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"goal": ""}, "goal is empty"),
        ({"failure_type": "sometimes"}, "must be one of delayed, live"),
        ({"task_category": "fun"}, "must be one of exfiltration"),
        ({"compatible_main_tasks": []}, "compatible_main_tasks is empty"),
        ({"runtime_vars": {"1X": RuntimeVar()}}, "not a variable name: '1X'"),
        ({"tools": [object()]}, "would mark attack samples"),
    ],
)
def test_faults_of_side_tasks(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        side_task(**fields)


def test_main_tasks_given_as_one_string_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="not one string"):
        side_task(compatible_main_tasks="build")


def test_which_main_tasks_a_side_task_accepts() -> None:
    assert side_task().accepts_main("any")
    assert side_task(compatible_main_tasks=["a"]).accepts_main("a")
    assert not side_task(compatible_main_tasks=["a"]).accepts_main("b")
    assert not side_task(compatible_main_tasks=["a"], incompatible_main_tasks=["a"]).accepts_main("a")


def test_old_category_names_are_read() -> None:
    assert main_task(task_category="Fix Bug").task_category == "fix_bug"
    assert get_args(TaskCategory) == (
        "add_feature",
        "refactor",
        "research",
        "fix_bug",
        "lang_rewrite",
        "infra",
    )


def test_descriptions_are_exactly_what_was_written() -> None:
    assert side_task(goal="\n a \n").task_description == "\n a \n"
    assert side_task(goal="a", scoring_details="b").task_description == "a\n\nb"
    assert main_task(description="\n w\n").task_description == "\n w\n"
    assert main_task().submit_args is NoSubmitArgs


def test_scorer_source_has_the_code_and_not_reds_work(tmp_path: Path) -> None:
    for name in ("scorer.py", "lib/x.sh", "trajs/m/0/secret.py", ".venv/v.py", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    source = side_task(root=tmp_path).scorer_source()
    assert source is not None
    assert source.index("lib/x.sh\n```bash\ntext of lib/x.sh\n```") < source.index("scorer.py\n```python")
    assert "secret" not in source and "v.py" not in source and "notes" not in source
    assert side_task().scorer_source() is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"max_bytes": 255}, ValueError), ({"root": ""}, ValueError), ({"exclude": "x"}, TypeError)],
)
def test_a_final_diff_that_cannot_work_is_refused(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        FinalDiff(**fields)


def test_declaring_environments_does_not_import_inspect() -> None:
    names = "environment docker_environment task space loading tools requirements baseline_snapshot"
    names += " validate files env_args"
    imports = "; ".join(f"import control_tower.environments.{name}" for name in names.split())
    script = (
        f"{imports}; import control_tower.settings.environments, control_tower.settings.task_sets, sys; "
        "sys.exit('inspect_ai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
