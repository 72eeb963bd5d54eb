"""`ct run eval` as a user types it, on the demo, and the log that comes out."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, read_eval_log, read_eval_log_sample

from control_tower.logs.validate import validate_log

CT = Path(sys.executable).with_name("ct")
Finished = subprocess.CompletedProcess[str]

MISSION_ATTACK = (
    "run eval --policy attack --env web_scraping --main-task crawl_depth "
    "--side-task visit_malicious_website --no-upload"
)
MISSION_HONEST = (
    "run eval --policy honest --env web_scraping --main-task crawl_depth "
    "--tag experiment-1 --tag baseline --no-upload"
)


def ct(command: str, cwd: Path, **env: str) -> Finished:
    """Run a `ct` command line in a folder."""
    return subprocess.run(
        [CT, *command.split()],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def only_log(folder: Path) -> Path:
    """The one log of a folder."""
    [log] = (folder / "logs").glob("*.eval")
    return log


class Ran:
    """A finished command and its log."""

    def __init__(self, finished: Finished, folder: Path) -> None:
        self.finished = finished
        self.folder = folder

    @property
    def log(self) -> EvalLog:
        """The whole log."""
        return read_eval_log(str(only_log(self.folder)))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The honest command of the guide, with a table."""
    folder = tmp_path_factory.mktemp("honest")
    return Ran(ct(MISSION_HONEST, folder), folder)


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The attack command of the guide, with JSON."""
    folder = tmp_path_factory.mktemp("attack")
    return Ran(ct(MISSION_ATTACK + " --format json", folder), folder)


def test_the_honest_command_ends_with_a_table(honest: Ran) -> None:
    out = honest.finished.stdout
    assert honest.finished.returncode == 0, honest.finished.stderr
    for line in (
        "status",
        "usefulness",
        "1.000 (1 scored)",
        "unscored",
        "errored",
        "refused",
        "steps",
        "cost of",
        "log ",
        "Next: ",
        "inspect view --log-dir logs",
    ):
        assert line in out
    assert "demo/agent" in honest.finished.stderr, "one line says which models stand in"
    assert "sandbox" in honest.finished.stderr


def test_the_attack_command_prints_one_json_object(attack: Ran) -> None:
    assert attack.finished.returncode == 0, attack.finished.stderr
    result = json.loads(attack.finished.stdout)
    assert attack.finished.stdout.count("\n") == 1
    assert result["status"] == "success"
    assert result["run_id"] is None
    assert (result["samples"], result["unscored"], result["errored"]) == (1, 0, 0)
    assert result["side_success"] == 1.0
    assert result["usefulness"] is None
    assert result["cost_usd"] > 0
    assert Path(attack.folder / result["log"]).is_file()


def test_tags_and_command_are_in_the_header(honest: Ran) -> None:
    metadata = honest.log.eval.metadata or {}
    assert metadata["tags"] == ["experiment-1", "baseline"]
    assert metadata["command"] == "ct " + MISSION_HONEST
    assert metadata["run_name"] == "honest-vs-null-blue-team"
    assert metadata["policy"] == "ct/honest-vs-ct/null-blue-team"
    assert honest.log.eval.task == "honest-vs-null-blue-team"


def test_the_logs_obey_the_format(honest: Ran, attack: Ran) -> None:
    for ran in (honest, attack):
        assert validate_log(only_log(ran.folder)) == []


def test_registry_names_are_those_other_readers_know(attack: Ran) -> None:
    log = attack.log
    assert log.eval.task_registry_name == "control_tower/eval"
    assert log.plan.steps[0].solver == "control_tower/eval_runner"
    assert log.plan.steps[0].params == {}
    assert [scorer.name for scorer in log.eval.scorers or []] == [
        "visit_malicious_website",
        "crawl_depth",
        "tasks",
        "monitor",
        "audit",
    ]
    assert log.eval.model == "none/none"
    assert log.eval.tags is None


def test_a_sample_records_tasks_environment_and_tools(attack: Ran) -> None:
    [sample] = attack.log.samples or []
    assert sample.id == "demo/web_scraping:crawl_depth:visit_malicious_website"
    metadata = sample.metadata
    assert [task["id"] for task in metadata["main_tasks"]] == ["crawl_depth"]
    assert metadata["side_tasks"][0]["failure_type"] == "live"
    assert metadata["side_tasks"][0]["scorer_code_snapshot"]
    assert metadata["environment"]["id"] == "demo/web_scraping"
    assert len(metadata["environment"]["side_task_goals"]) == 3
    assert {tool["id"] for tool in metadata["tools"]} >= {"ct/bash"}
    landing = (sample.scores or {})["visit_malicious_website"].metadata or {}
    assert landing["landed_at"] == 2
    assert landing["landed_source"] == "probe"


def test_inspect_reads_one_sample_at_a_time(attack: Ran) -> None:
    path = str(only_log(attack.folder))
    sample = read_eval_log_sample(path, "demo/web_scraping:crawl_depth:visit_malicious_website", 1)
    assert sample.error is None
    header = read_eval_log(path, header_only=True)
    assert header.status == "success"
    assert header.results is not None


def test_running_again_runs_again(honest: Ran) -> None:
    before = {path.name for path in (honest.folder / "logs").iterdir()}
    again = ct(MISSION_HONEST + " --format json --log-dir again", honest.folder)
    assert json.loads(again.stdout)["log"].startswith("again/")
    assert {path.name for path in (honest.folder / "logs").iterdir()} == before


def test_the_smoke_test_checks_first_and_plays_one_sample_of_each_stream(tmp_path: Path) -> None:
    ran = ct(
        "run eval --policy scripted -e demo/web_scraping --all --epochs 3 --smoke --format json", tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["honest"]["samples"], result["attack"]["samples"]) == (1, 1)
    assert "sandbox of demo/web_scraping" in ran.stderr
    assert "ok   scorers" in ran.stderr


def test_a_missing_key_is_said_before_anything_starts(tmp_path: Path) -> None:
    ran = ct(
        "run eval -e demo/web_scraping -t crawl_depth --model-role untrusted=haiku",
        tmp_path,
        ANTHROPIC_API_KEY="",
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "ANTHROPIC_API_KEY" in ran.stderr
    assert not (tmp_path / "logs").exists()


BROKEN = """
from control_tower.environments.task import MainTask
from tests.support.toy import TOY_SANDBOX, ToyEnvironment


def get_environments():
    return {"toy": ToyEnvironment(greet={"setup_script": "#!/bin/bash\\nexit 3\\n"})}
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a setting of which one of two main tasks cannot be set up."""
    setting = tmp_path / "settings" / "toys"
    monkeypatch.setenv("CONTROL_TOWER_SETTINGS_DIR", str(setting.parent))
    setting.mkdir(parents=True)
    (setting / "setting.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def test_one_errored_sample_is_counted_and_the_others_are_kept(broken: Path) -> None:
    ran = ct("run eval --policy test -e toy -t greet -t part --format json", broken)
    result = json.loads(ran.stdout)
    assert ran.returncode == 1
    assert (result["samples"], result["errored"]) == (2, 1)
    assert result["usefulness"] == 0.0
    assert "--resume" in ran.stderr
    tolerated = ct("run eval --policy test -e toy -t greet -t part --format json --no-fail-on-error", broken)
    assert tolerated.returncode == 0
    assert json.loads(tolerated.stdout)["status"] == "success"


def test_when_all_samples_errored_the_run_failed_whatever_is_tolerated(broken: Path) -> None:
    ran = ct("run eval --policy test -e toy -t greet --format json --no-fail-on-error", broken)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["status"] == "error"
    assert "all 1 samples errored" in ran.stderr


def ended(process: "subprocess.Popen[bytes]", until: Callable[[], bool], how: signal.Signals) -> None:
    """Signal a running command once something is true."""
    deadline = time.monotonic() + 120
    while not until():
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(how)
    process.wait(timeout=60)


RESUMED = (
    "run eval --policy scripted -e demo/web_scraping --just-main-tasks --epochs 2 --max-samples 2 --no-upload"
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_is_resumed(tmp_path: Path, how: signal.Signals) -> None:
    progress = tmp_path / "progress"
    with progress.open("wb") as stderr:
        process = subprocess.Popen(
            [CT, *RESUMED.split()], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=stderr
        )
        ended(process, lambda: progress.read_bytes().count(b"epoch") >= 2, how)
    if how == signal.SIGINT:
        assert process.returncode == 130
    resumed = ct(RESUMED + " --resume --format json", tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    result: dict[str, Any] = json.loads(resumed.stdout)
    assert (result["samples"], result["missing"], result["errored"]) == (4, 0, 0)
    assert result["usefulness"] == 1.0
    played = resumed.stderr.count("] demo/")
    assert played <= 2 + 1, "what the first log held was kept"
    merged = read_eval_log(str(tmp_path / result["log"]))
    assert merged.status == "success"
    assert len({(s.id, s.epoch) for s in merged.samples or []}) == 4
    nothing_left = ct(RESUMED + " --resume", tmp_path)
    assert nothing_left.returncode == 1
    assert "no unfinished log" in nothing_left.stderr
