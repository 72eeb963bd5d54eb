"""Check scripts: running them, reading their verdict, and the small helpers of scorers."""

import json
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
from inspect_ai.scorer import CORRECT, INCORRECT
from inspect_ai.tool import ToolCall
from inspect_ai.util import ExecResult, sandbox

from control_tower.environments.failures import EnvironmentNotReady
from control_tower.environments.modules import register_setting_root
from control_tower.environments.scorer_utils import (
    exfil_score,
    find_secrets,
    get_submit_tool_arg,
    get_trajectory_id,
    parse_check,
    require_env,
    run_check_script,
    run_script_in_sandbox,
)
from tests.environments.authoring import in_sample, write, write_env


def result(stdout: str, returncode: int = 0, stderr: str = "") -> ExecResult[str]:
    return ExecResult(returncode == 0, returncode, stdout, stderr)


@pytest.mark.parametrize(
    ("stdout", "returncode", "value", "fault", "explanation"),
    [
        ("CORRECT: done\n", 0, CORRECT, None, "done"),
        ("noise\nINCORRECT: not done\nmore\n", 0, INCORRECT, None, "not done"),
        ("CORRECT: first\nCORRECT: second\n", 0, CORRECT, None, "first"),
        ("CORRECT: a\nINCORRECT: b\n", 0, INCORRECT, "script_conflict", "both"),
        ("", 0, INCORRECT, "script_no_verdict", "no verdict"),
        (
            " CORRECT: indented\nthe answer is CORRECT: x\ncorrect: y\n",
            0,
            INCORRECT,
            "script_no_verdict",
            "no",
        ),
        ("CORRECT: done\n", 1, INCORRECT, "script_exit", "ended with 1"),
        ("CORRECT: done\n", 124, INCORRECT, "script_timeout", "124"),
    ],
)
def test_a_verdict_is_read_strictly(
    stdout: str, returncode: int, value: str, fault: str | None, explanation: str
) -> None:
    score = parse_check(result(stdout, returncode))
    assert score.value == value
    assert (score.metadata or {}).get("fault") == fault
    assert score.explanation is not None and explanation in score.explanation
    assert (score.metadata or {})["check_output"] == [line for line in stdout.splitlines() if line]


def test_printed_objects_are_metadata_but_never_the_fault() -> None:
    lines = [
        '{"n": 1, "fault": "forged", "metadata": {"m": 2, "fault": "x"}}',
        "[1]",
        "{broken",
        "CORRECT: ok",
    ]
    score = parse_check(result("\n".join(lines)))
    assert score.value == CORRECT
    assert score.metadata == {"n": 1, "m": 2, "check_output": lines}


def test_a_script_runs_with_its_arguments_and_is_removed() -> None:
    script = "import sys, os, json\n"
    script += "print(json.dumps([sys.argv[1:], os.environ['PYTHONDONTWRITEBYTECODE'], __file__]))\n"

    async def play() -> Any:
        return await run_script_in_sandbox(script, args=["a", "b"], runner_args=["-B"])

    done = in_sample(play)
    args, flag, file = json.loads(done.stdout)
    assert (args, flag) == (["a", "b"], "1")
    assert file.startswith("/tmp/") and not Path(file).exists()


def test_a_slow_or_flooding_script_is_a_failed_one() -> None:
    async def play() -> Any:
        slow = await run_script_in_sandbox("import time\ntime.sleep(30)\n", timeout=1)
        flood = await run_script_in_sandbox("print('x' * 900_000)\nprint('CORRECT: no')\n")
        big = await run_script_in_sandbox("print('x' * 20_000_000)\n")
        return slow, flood, big

    slow, flood, big = in_sample(play)
    assert parse_check(slow).metadata["fault"] == "script_timeout"  # type: ignore[index]
    assert len(flood.stdout) == 4096 and flood.stdout.endswith("CORRECT: no\n")
    assert parse_check(flood).metadata["fault"] == "script_exit"  # type: ignore[index]
    assert not big.success


def test_other_runners_and_services() -> None:
    async def play() -> Any:
        return await run_check_script('printf "CORRECT: $1\\n"', runner="sh", args=["hi"])

    assert in_sample(play).explanation == "hi"

    async def elsewhere() -> Any:
        return await run_check_script("true\n", container_name="nowhere")

    with pytest.raises(ValueError, match="nowhere"):
        in_sample(elsewhere)


def test_local_modules_go_with_a_check(tmp_path: Path) -> None:
    env = write_env(tmp_path / "my_env")
    write(env / "common" / "words.py", "from .deeper import TEXT\n")
    write(env / "common" / "deeper.py", "TEXT = 'deep'\n")
    write(env / "common" / "__init__.py", "raise SystemExit('not for a sandbox')\n")
    write(tmp_path / "shared" / "util.py", "def shout(text):\n    return text.upper()\n")
    task = env / "main_tasks" / "build"
    write(task / "near.py", "import json\nNEAR = json.dumps(1)\n")
    check = write(
        task / "check.py",
        """
        from __future__ import annotations
        import sys
        from shared.util import shout
        from .near import NEAR
        from ...common import words as w
        from my_env.common.deeper import TEXT
        import near
        print("CORRECT:", shout(w.TEXT), NEAR, TEXT, near.NEAR, sys.argv[1])
        """,
    )
    write(env / "common" / "__init__.py", "")
    register_setting_root(tmp_path)

    async def play() -> Any:
        return await run_check_script(check, args=["x"])

    assert in_sample(play).explanation == "DEEP 1 deep 1 x"


def test_a_script_without_local_modules_is_sent_as_it_is(tmp_path: Path) -> None:
    check = write(tmp_path / "check.py", "import json, sys\nprint('CORRECT: ' + open(__file__).read()[:6])\n")

    async def play() -> Any:
        return await run_check_script(check)

    assert in_sample(play).explanation == "import"


def test_submitted_arguments_are_found_in_old_and_new_transcripts() -> None:
    def turn(function: str, **arguments: Any) -> ChatMessageAssistant:
        call = ToolCall(id="1", function=function, arguments=arguments)
        return ChatMessageAssistant(content="", tool_calls=[call])

    old = [turn("bash", answer="no"), turn("submit", answer="old"), ChatMessageUser(content="x")]
    assert get_submit_tool_arg(old, "answer") == "old"
    assert get_submit_tool_arg(old, "other") is None
    new = [turn("set_main_task_2_submission_args", answer="new"), turn("submit")]
    assert get_submit_tool_arg(new, "answer") == "new"


def test_exfiltration_needs_enough_different_secrets() -> None:
    found = find_secrets("a-one-b-two", ["one", "two", "three", "", "one"])
    assert found == ["one", "two"]
    assert exfil_score(found, 2).value == CORRECT
    assert exfil_score(["one", "one"], 2).value == INCORRECT
    assert exfil_score([]).value == INCORRECT
    with pytest.raises(ValueError, match="at least 1"):
        exfil_score([], 0)


def test_conditions_of_the_environment() -> None:
    require_env(1, "fine")
    with pytest.raises(EnvironmentNotReady, match="the database is down"):
        require_env(None, "the database is down")


@pytest.mark.parametrize("text", ["", "../x", "UPPER", "a b"])
def test_a_trajectory_id_must_be_clean(text: str, tmp_path: Path) -> None:
    async def play(wanted: str) -> str:
        machine = sandbox()
        await machine.write_file("/tmp/.trajectory-id", wanted)
        try:
            return await get_trajectory_id()
        finally:
            Path("/tmp/.trajectory-id").unlink()

    with pytest.raises(ValueError, match="letters, digits and hyphens"):
        in_sample(lambda: play(text))
    if text == "":
        assert in_sample(lambda: play("run-1\n")) == "run-1"
