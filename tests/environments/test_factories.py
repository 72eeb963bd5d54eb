"""Tasks made by factories: planted bugs and questions."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.model import ModelName
from inspect_ai.scorer import CORRECT, INCORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.util import sandbox

from control_tower.environments.bug_fix import make_bug_fix_scorer, make_bug_fix_setup
from control_tower.environments.research_task import ResearchAnswer, make_research_scorer
from control_tower.environments.submit import Submission, record_submission
from control_tower.environments.task import MainTask
from control_tower.environments.yaml_metadata import MetadataError
from tests.environments.authoring import in_sample, write, write_env


def state() -> TaskState:
    return TaskState(ModelName("mockllm/model"), "s", 1, "", [])


@pytest.mark.parametrize(
    ("answer", "value"), [(" forty TWO\n", CORRECT), ("42", CORRECT), ("43", INCORRECT), (None, INCORRECT)]
)
def test_an_answer_is_compared_without_case_and_outer_spaces(answer: str | None, value: str) -> None:
    scorer = make_research_scorer("q", ["Forty two", "42"])
    task = MainTask("q", "Q", "e", "how many?", scorer, submit_args=ResearchAnswer)

    async def play() -> Any:
        given = state()
        if answer is not None:
            record_submission(given.store_as(Submission), task, ResearchAnswer(answer=answer))
        assert task.scorer is not None
        return await task.scorer(given, Target(""))

    assert in_sample(play).value == value


@pytest.mark.parametrize("accepted", [[], ["a", "  "]])
def test_a_question_without_an_answer_is_refused(accepted: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one accepted answer"):
        make_research_scorer("q", accepted)


def bug_task(tmp_path: Path, code: Path) -> Path:
    env = write_env(tmp_path / "env_of_bugs")
    write(code / "calc.py", "def add(a, b):\n    return a + b\n")
    write(
        env / "mtgen" / "bugfix.yml",
        f"container_code_path: {code}\ndeploy_command: touch deployed\ndefault_timeout: 5\nother: 1\n",
    )
    write(
        env / "main_tasks" / "repair" / "mutation.patch",
        """
        --- a/calc.py
        +++ b/calc.py
        @@ -1,2 +1,2 @@
         def add(a, b):
        -    return a + b
        +    return a - b
        """,
    )
    write(
        env / "tests" / "test_integration.py",
        f"""
        import sys
        sys.path.insert(0, {str(code)!r})
        from calc import add
        def test_add():
            assert add(1, 2) == 3
        if __name__ == "__main__":
            test_add()
        """,
    )
    return env / "main_tasks" / "repair"


def test_a_planted_bug_fails_the_tests_until_it_is_repaired(tmp_path: Path) -> None:
    code = tmp_path / "code"
    task = bug_task(tmp_path, code)
    scorer, setup = make_bug_fix_scorer(task), make_bug_fix_setup(task)
    assert MainTask("repair", "R", "e", "d", scorer, setup_script=setup).setup_script == setup

    async def play() -> Any:
        machine = sandbox()
        planted = await machine.exec(["bash", "-c", setup])
        assert planted.success, planted.stderr
        broken = await scorer(state(), Target(""))
        write(code / "calc.py", "def add(a, b):\n    return b + a\n")
        return broken, await scorer(state(), Target(""))

    broken, repaired = in_sample(play)
    assert (code / "deployed").exists()
    assert broken.value == INCORRECT and "assert" in broken.explanation
    assert repaired.value == CORRECT


def test_a_test_that_hangs_is_incorrect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = bug_task(tmp_path, tmp_path / "code")
    write(task / "check_integration.py", "import time\ntime.sleep(5)\n")
    monkeypatch.setenv("CONTROL_TOWER_INTEGRATION_SUITE_TIMEOUT", "1")
    scorer = make_bug_fix_scorer(task)
    score = in_sample(lambda: scorer(state(), Target("")))  # type: ignore[arg-type]
    assert score.value == INCORRECT and "more than 1 s" in score.explanation


def test_missing_parts_are_named(tmp_path: Path) -> None:
    env = write_env(tmp_path / "env_of_nothing")
    task = write(env / "main_tasks" / "repair" / "info.yml", "").parent
    with pytest.raises(FileNotFoundError, match=r"mutation\.patch"):
        make_bug_fix_setup(task)
    with pytest.raises(FileNotFoundError, match=r"check_integration\.py or"):
        make_bug_fix_scorer(task)
    write(env / "mtgen" / "bugfix.yml", "default_timeout: long\n")
    with pytest.raises(MetadataError, match=r"bugfix\.yml"):
        make_bug_fix_scorer(task)
