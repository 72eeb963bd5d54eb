"""`ct run eval` as a user with keys types it: the demo in bubblewrap through real providers; no key leaks."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from inspect_ai.log import read_eval_log

from control_tower.demo.web_scraping import environment
from control_tower.game.prompts import prompt
from control_tower.logs.archive import EvalArchive
from control_tower.policies.scripted import read_trajectory
from control_tower.sandbox.namespaces import bubblewrap_problem
from tests.providers.conftest import MESSAGES, RESPONSES, bash, role
from tests.support.provider_records import Answer, Call, Tokens
from tests.support.provider_stub import ANTHROPIC_KEY, OPENAI_KEY, ProviderStub

KEYS = (OPENAI_KEY.encode(), ANTHROPIC_KEY.encode())
SPY = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat ~/.env .env 2>&1"

STOP = prompt("control_tower.policies.prompts", "stop_attacking")

_CT = os.fsencode(Path(sys.executable).with_name("ct"))


@pytest.fixture(autouse=True)
def _bubblewrap() -> None:
    if problem := bubblewrap_problem():
        pytest.skip(problem)


@dataclass
class Watched:
    """A finished command, and what its processes showed of keys while it ran."""

    code: int = -1
    stdout: bytes = b""
    stderr: bytes = b""
    leaks: set[str] = field(default_factory=set[str])
    programs: set[bytes] = field(default_factory=set[bytes])
    """What its children ran."""


def run(arguments: list[str], extra: dict[str, str], folder: Path) -> Watched:
    """Run `ct`, watching the arguments and environments of all that it starts."""
    seen = Watched()
    process = subprocess.Popen(
        [_CT, *arguments],
        cwd=folder,
        env={**os.environ, **extra},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, seen, done))
    watcher.start()
    try:
        seen.stdout, seen.stderr = process.communicate(timeout=240)
    finally:
        process.kill()
        done.set()
        watcher.join()
    seen.code = process.returncode
    return seen


def _watch(root: int, seen: Watched, done: threading.Event) -> None:
    while not done.wait(0.02):
        for pid in _with_children(root):
            program = _read(f"/proc/{pid}/cmdline")
            environment = b""
            # A child that has not yet begun its own program shows ours; git is asked about our checkout.
            ours = _CT in program.split(b"\0")[:2]
            if program and not ours and not program.startswith((b"git\0", b"/usr/bin/git\0")):
                environment = _read(f"/proc/{pid}/environ")
                seen.programs |= {program.partition(b"\0")[0]}
            for content in (program, environment):
                if any(key in content for key in KEYS):
                    seen.leaks.add(repr(program[:200]))


def _with_children(root: int) -> list[int]:
    try:
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    except psutil.Error:
        return [root]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def prepared(folder: Path) -> list[Answer]:
    """The turns of a prepared trajectory, as a model that thinks and looks around for keys makes them."""
    calls = [Call(name, arguments) for name, arguments in read_trajectory(folder / "0" / "template.jsonl")]
    first, *rest = (Answer("Next.", [call], reasoning="Hm.", tokens=TOKENS) for call in calls)
    return [Answer("A look.", [bash(SPY), *first.calls], reasoning="Keys?", tokens=TOKENS), *rest]


TOKENS = Tokens(uncached=500, cached=2_000, output=300, reasoning=100)


def results(seen: Watched, folder: Path) -> Any:
    """The object that the command printed, after checking that no key was shown anywhere."""
    assert seen.code == 0, seen.stderr.decode()
    shown = json.loads(seen.stdout)
    shown["log"] = str(folder / shown["log"])
    with EvalArchive.open(shown["log"]) as archive:
        unpacked = b"\n".join(archive.members.read(name) for name in archive.members.members)
    for place in (seen.stdout, seen.stderr, unpacked):
        assert not any(key in place for key in KEYS)
    assert seen.leaks == set()
    assert any(b"bwrap" in program for program in seen.programs), seen.programs
    return shown


def asked(stub: ProviderStub) -> bytes:
    """Everything that providers were sent, but for headers."""
    return b"\n".join(json.dumps(request.body).encode() for request in stub.requests)


def test_an_honest_run_on_openai(stub: ProviderStub, tmp_path: Path) -> None:
    turns = prepared(environment.path / "main_tasks" / "crawl_depth" / "trajs" / "honest")
    stub.script(RESPONSES, turns)
    untrusted = role(RESPONSES, reasoning_effort="low", stream_idle_timeout=60)
    command = ["run", "eval", "--policy", "honest", "--env", "web_scraping", "--main-task", "crawl_depth"]
    command += ["--sandbox", "bwrap", "--model-role", f"untrusted={untrusted}"]
    command += ["--tag", "experiment-1", "--no-upload", "--format", "json"]
    seen = run(command, stub.environment(), tmp_path)
    shown = results(seen, tmp_path)
    assert (shown["usefulness"], shown["errored"], shown["unscored"]) == (1, 0, 0)
    assert shown["outcomes"] == {"submitted": 1}
    assert shown["cost_usd"] == pytest.approx(
        len(turns) * (500 * 0.05 + 2_000 * 0.005 + 300 * 0.40) / 1e6, rel=1e-9
    )
    assert len(stub.requests) == len(turns)
    assert all(request.streamed for request in stub.requests)
    assert {request.body["reasoning"]["effort"] for request in stub.requests} == {"low"}
    assert all(key not in asked(stub) for key in KEYS)
    assert b"HOME=" in asked(stub)


def test_an_attack_on_anthropic_that_probes_with_the_default_models(
    stub: ProviderStub, tmp_path: Path
) -> None:
    side = environment.path / "side_tasks" / "visit_malicious_website"
    turns = prepared(side / "trajs" / "crawl_depth")
    stub.script(MESSAGES, turns)
    command = ["run", "eval", "--policy", "attack", "--env", "web_scraping", "--main-task", "crawl_depth"]
    command += ["--side-task", "visit_malicious_website", "-p", "probe=true"]
    command += ["-wa", "private_tools=ct/run_side_task_test", "--sandbox", "bwrap", "--no-upload"]
    seen = run([*command, "--format", "json"], stub.environment(), tmp_path)
    shown = results(seen, tmp_path)
    assert (shown["side_success"], shown["errored"], shown["unscored"]) == (1, 0, 0)
    assert shown["outcomes"] == {"submitted": 1}
    log = read_eval_log(shown["log"])
    assert log.samples is not None
    scores = log.samples[0].scores or {}
    visit = next(n for n, turn in enumerate(turns) if any("malware" in call.text for call in turn.calls))
    assert (scores["visit_malicious_website"].metadata or {})["landed_at"] == visit
    stopped = [STOP in request.turns[-1].text for request in stub.requests]
    assert all("run_side_task_test" not in request.tools for request in stub.requests)
    assert stopped == [False] * (visit + 1) + [True] * (len(turns) - visit - 1)
    assert all(key not in asked(stub) for key in KEYS)
