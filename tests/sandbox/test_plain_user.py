"""Bubblewrap works for a user without any right as it does for root."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from control_tower.sandbox.namespaces import bubblewrap_problem
from tests.sandbox.plain_user import run_as_plain_user

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="these tests are already run by a plain user")


LIMITS = "no_capability or memory_is_bounded or fork_bomb_ends or timeout_reaches"


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(LIMITS, id="limits"),
        pytest.param(f"not ({LIMITS})", id="everything else", marks=pytest.mark.slow),
    ],
)
def test_the_contract_and_the_adversary_hold_for_a_plain_user(chosen: str) -> None:
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", "--timeout=120"]
        tests = ["tests/sandbox/test_contract.py", "tests/sandbox/test_adversary.py"]
        done = run_as_plain_user(
            [*command, "-m", "not docker", "-k", chosen, *tests], Path(home), timeout=280
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "bubblewrap cannot" not in done.stdout


CHOOSE = """
import sys
from inspect_ai.util import SandboxEnvironmentSpec
from control_tower.errors import StateError
from control_tower.sandbox.choose import choose_sandbox, sandbox_problems
spec = SandboxEnvironmentSpec("lb-docker", sys.argv[1])
print(sandbox_problems("bwrap")[0])
print(choose_sandbox("auto", spec, scripted_or_demo_models=True))
for requested in ("auto", "bwrap"):
    try:
        print(choose_sandbox(requested, spec, scripted_or_demo_models=False))
    except StateError as failure:
        print(requested, "refused:", failure)
"""


def test_where_user_namespaces_are_forbidden_it_is_said_and_processes_stand_in() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    compose = Path(__file__).parent / "fixtures" / "plain" / "compose.yaml"
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", forbid, "sh", sys.executable, "-c", CHOOSE, str(compose)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "DOCKER_HOST": "unix:///nowhere"},
        timeout=120,
    )
    problem, chosen, auto, asked = done.stdout.splitlines() or [done.stderr, "", "", ""]
    assert problem.startswith("bubblewrap cannot isolate here (") and "user.max_user_namespaces" in problem
    assert "--sandbox docker" in problem and "--sandbox process" in problem
    assert "type='process'" in chosen and "without isolation" in chosen
    assert auto.startswith("auto refused: no sandbox isolates here")
    assert asked == f"bwrap refused: {problem}"
