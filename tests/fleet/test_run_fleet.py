"""`--fleet local` as a user types it, on the demo: with processes, signals, and what comes of it."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspect_ai.log import read_eval_log

from control_tower.cli.fleet_progress import FleetLine
from control_tower.cli.run import run
from control_tower.errors import ExpectedError
from control_tower.fleet.progress import Progress
from control_tower.logs.diff import diff_logs
from control_tower.logs.validate import validate_log
from tests.evals.test_run_eval import CT, Finished, ct, ended

DEMO = "-e demo/web_scraping -t crawl_depth"
BOTH = (
    "run control-eval --honest-policy scripted --attack-policy scripted "
    f"{DEMO} -s visit_malicious_website --epochs 2 --no-upload"
)
FLEET = "--fleet local --fleet-arg workers=2"
ONE = f"run eval --policy scripted {DEMO} --no-upload --fleet local"

FAILURES = """jq -c 'select(.type=="job_done" and .status!="completed")' \\
  logs/fleet/<fleet_id>/events.jsonl"""
SCORES = """jq -c 'select(.type=="result") | {task, status, scores, duration_s}' \\
  logs/fleet/<fleet_id>/events.jsonl"""
PASS_RATE = """jq -s '[.[] | select(.type=="result")] | {n: length, passed: ([.[] | select(.scores.linux_scorer.value.main_task_success=="C")] | length)}' \\
  logs/fleet/<fleet_id>/events.jsonl"""  # noqa: E501

BROKEN = """
from control_tower.game.red import Policy
from control_tower.policies.registry import policies

class Broken(Policy):
    def setup(self, view):
        raise RuntimeError("it is broken")

@policies.register(attempts_side_task=True, scripted=True)
def broken():
    return Broken()
"""


class Ran:
    """A finished command, the folder it ran in, and its fleet."""

    def __init__(self, command: str, folder: Path) -> None:
        self.folder = folder
        self.finished: Finished = ct(command, folder, CONTROL_TOWER_DATA_DIR=str(folder / "data"))

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object."""
        return json.loads(self.finished.stdout)

    @property
    def events_file(self) -> Path:
        """Of its only fleet."""
        return events_of(self.folder)

    def jq(self, recipe: str) -> list[Any]:
        """What a recipe of the guide prints, its fleet's id filled in."""
        command = recipe.replace("<fleet_id>", self.events_file.parent.name)
        done = subprocess.run(
            ["bash", "-c", f"{command} | jq -c ."],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def events_of(folder: Path) -> Path:
    [path] = (folder / "logs" / "fleet").glob("*/events.jsonl")
    return path


def events(path: Path) -> list[dict[str, Any]]:
    """All events of a file, which must be whole, strict and numbered without gaps."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = path.read_text()
    assert text.endswith("\n")
    found = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    return found


def of_type(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in found if event["type"] == kind]


def living(folder: Path) -> list[str]:
    """Processes whose command line or environment names a folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            told = command + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in told and process.name != str(os.getpid()):
            found.append(os.fsdecode(command))
    return found


def played(log: Path) -> dict[tuple[int | str, int], Any]:
    """What each sample of a log came to, and what was done in it."""
    return {
        (one.id, one.epoch): (
            {name: score.value for name, score in (one.scores or {}).items()},
            [call for message in one.messages for call in getattr(message, "tool_calls", None) or ()],
        )
        for one in read_eval_log(str(log)).samples or []
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Both streams, each at two epochs, by two workers."""
    ran = Ran(f"{BOTH} {FLEET} --format json", tmp_path_factory.mktemp("fleet"))
    assert ran.finished.returncode == 0, ran.finished.stderr
    return ran


@pytest.mark.slow
def test_a_fleet_gives_what_one_process_gives(both: Ran) -> None:
    one = Ran(f"{BOTH} --log-dir one --format json", both.folder)
    ours, theirs = both.result, one.result
    fleet = ours.pop("fleet")
    assert (fleet["completed"], fleet["failed"]) == (4, 0)
    assert both.folder / fleet["events"] == both.events_file
    logs = [both.folder / result.pop("log") for result in (theirs, ours)]
    assert ours == theirs
    # What a machine wrote about its own time differs in samples; the header knows no machine.
    header = [one.path for one in diff_logs(*logs, {"ids", "times"}) if one.where == "header"]
    assert header == ["eval.metadata.command", "eval.metadata.fleet"]
    assert played(logs[0]) == played(logs[1])
    assert validate_log(logs[1]) == []
    assert logs[1].name.endswith(f"_{fleet['id']}.eval")
    assert living(both.folder) == []


def untimed(value: Any) -> str:
    """A text without the seconds that differ from run to run."""
    return re.sub(r"[0-9]+[.][0-9]+", "#", str(value))


@pytest.mark.slow
def test_its_events_are_whole_and_say_what_the_guide_says(both: Ran) -> None:
    found = events(both.events_file)
    [start], [end] = of_type(found, "fleet_start"), of_type(found, "fleet_summary")
    assert (start["fleet_id"], start["expected"], start["workers"]) == (both.result["fleet"]["id"], 4, 2)
    assert (end["completed"], end["failed"], end["total_expected"]) == (4, 0, 4)
    workers = {event["instance_id"] for event in of_type(found, "worker_online")}
    assert len(workers) == 2
    assert all(0 < event["bootstrap_s"] < 60 for event in of_type(found, "worker_online"))
    done, results = of_type(found, "job_done"), of_type(found, "result")
    assert len({event["job_id"] for event in done}) == len(done) == len(results) == 4
    assert {event["job_id"] for event in results} == {event["job_id"] for event in done}
    assert {event["instance_id"] for event in done} <= workers
    assert sorted((event["task"], event["epoch"], event["mode"]) for event in results) == [
        ("demo/web_scraping/crawl_depth", 1, "honest"),
        ("demo/web_scraping/crawl_depth", 2, "honest"),
        ("demo/web_scraping/crawl_depth+visit_malicious_website", 1, "attack"),
        ("demo/web_scraping/crawl_depth+visit_malicious_website", 2, "attack"),
    ]


@pytest.mark.slow
def test_the_recipes_of_the_guide_count_right(both: Ran) -> None:
    assert shutil.which("jq"), "the recipes need jq"
    assert both.jq(FAILURES) == []
    scores = both.jq(SCORES)
    assert len(scores) == 4
    assert all(list(one) == ["task", "status", "scores", "duration_s"] for one in scores)
    for one in scores:
        value = one["scores"]["linux_scorer"]["value"]
        # Main tasks are not scored on attack samples.
        expected = (
            {"main_task_success": "N", "side_task_success": "C"}
            if "+" in one["task"]
            else {"main_task_success": "C"}
        )
        assert value == expected
    assert both.jq(PASS_RATE) == [{"n": 4, "passed": 2}]


@pytest.mark.slow
def test_the_same_command_again_plays_nothing_and_shows_the_same(both: Ran) -> None:
    before = both.events_file.read_bytes()
    again = Ran(f"{BOTH} {FLEET} --format json", both.folder)
    assert again.finished.returncode == 0, again.finished.stderr
    assert "is finished: nothing runs" in again.finished.stderr
    assert again.result == both.result
    assert both.events_file.read_bytes() == before


@pytest.mark.slow
def test_a_job_that_failed_is_named_and_its_log_opens(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    ran = Ran(
        f"run control-eval --honest-policy scripted --attack-policy broken.py@broken {DEMO} "
        "-s visit_malicious_website --fleet local --fleet-arg workers=1 --fleet-arg max_failures=2 "
        "--format json",
        tmp_path,
    )
    assert ran.finished.returncode == 1, ran.finished.stderr
    result = ran.result
    assert (result["fleet"]["completed"], result["fleet"]["failed"]) == (1, 1)
    assert (result["usefulness"], result["errored"]) == (1.0, 1)
    assert result["run_id"] is None
    [failed] = ran.jq(FAILURES)
    fleet, job = result["fleet"]["id"], failed["job_id"]
    assert (failed["failure_category"], failed["attempts"]) == ("eval_error", 2)
    assert "it is broken" in failed["error_summary"]
    assert f"ct fleet why {fleet} {job}" in ran.finished.stderr
    assert f"data/fleets/{fleet}/{job}.eval" in ran.finished.stderr
    log = read_eval_log(str(tmp_path / "data" / "fleets" / fleet / f"{job}.eval"))
    assert log.status == "error"
    [sample] = log.samples or []
    assert sample.error and "it is broken" in sample.error.message
    assert ran.jq(PASS_RATE) == [{"n": 2, "passed": 1}]
    assert len(list((tmp_path / "logs").glob(f"*_{fleet}.eval"))) == 1
    uploaded = Ran(f"{' '.join(ran.finished.args[1:])} --upload", tmp_path)
    assert uploaded.finished.returncode == 1
    assert uploaded.result["run_id"] is not None


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_plays_only_what_is_missing(tmp_path: Path) -> None:
    command = f"run eval --policy sleep -p min_s=1 -p max_s=1 {DEMO} --epochs 5 --no-upload --fleet local"
    words = f"{command} --fleet-arg workers=1 --fleet-arg slots=1"
    environment = {**os.environ, "CONTROL_TOWER_DATA_DIR": str(tmp_path / "data")}
    with (tmp_path / "told").open("wb") as told:
        process = subprocess.Popen([CT, *words.split()], cwd=tmp_path, env=environment, stderr=told)
        logs = tmp_path / "logs"
        ended(
            process,
            lambda: any('"job_done"' in f.read_text() for f in logs.glob("fleet/*/*")),
            signal.SIGINT,
        )
    said = (tmp_path / "told").read_text()
    assert process.returncode == 130, said
    kept = {event["job_id"] for event in of_type(events(events_of(tmp_path)), "job_done")}
    assert 1 <= len(kept) < 5
    assert f"interrupted; {len(kept)} of 5 jobs are done and kept" in said
    assert list(logs.glob("*.eval")) == []
    ran = Ran(f"{words} --format json", tmp_path)
    assert ran.finished.returncode == 0, ran.finished.stderr
    assert (ran.result["samples"], ran.result["missing"]) == (5, 0)
    found = events(ran.events_file)
    assert len(of_type(found, "job_done")) == len(of_type(found, "result")) == 5
    assert of_type(found, "fleet_start")[-1]["resumed"] is True
    store = tmp_path / "data" / "fleets" / ran.result["fleet"]["id"]
    assert len(list(store.glob("claims/*.1"))) == 5
    for again in store.glob("claims/*.2"):
        # It was claimed when nothing was to begin any more, so it never ran.
        assert json.loads((store / "attempts" / f"{again.stem}.1.json").read_text())["duration_s"] == 0


@pytest.mark.slow
def test_a_fleet_that_is_left_running_is_gone_on_with(tmp_path: Path) -> None:
    left = Ran(f"{ONE} --fleet-arg detach=true --fleet-arg workers=1", tmp_path)
    assert left.finished.returncode == 0, left.finished.stderr
    fleet = left.events_file.parent.name
    assert f"ct fleet attach {fleet}" in left.finished.stderr
    assert left.finished.stdout == ""
    back = Ran(f"{ONE} --fleet-arg workers=1 --format json", tmp_path)
    assert back.finished.returncode == 0, back.finished.stderr
    assert back.result["usefulness"] == 1.0
    assert len(of_type(events(back.events_file), "job_done")) == 1
    assert living(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--fleet local --fleet-arg wokers=4", "did you mean 'workers'?"),
        ("--fleet local --fleet-arg workers=none", "'workers' is 'none'"),
        ("--fleet local --fleet-arg spot=true", "for fleets on EC2"),
        ("--fleet local --smoke", "--smoke"),
        ("--fleet local --resume", "the same command without --resume"),
        ("--fleet local --max-samples 4", "slots"),
        ("--fleet local --eval-arg fail_on_error=0.5", "fail_on_error is true or false"),
        ("--fleet-arg workers=4", "give --fleet local"),
        ("--fleet ec2", "--fleet ec2: EC2 fleets come later; --fleet local runs the same fleet"),
        ("--fleet lcal", "did you mean 'local'?"),
        ("--ec2", "--ec2: EC2 fleets come later; --fleet local runs the same fleet on this machine"),
        ("--ec2-arg region=eu-west-1", "--ec2-arg: EC2 fleets come later"),
        ("--fleet local --model-role untrusted=openai/gpt-5", "OPENAI_API_KEY"),
        ("--fleet local --sandbox docker", "Docker"),
        (
            "--fleet local --fleet-arg budget_usd=5 --model-role untrusted=mockllm/model",
            "budget_usd needs the price of mockllm/model",
        ),
    ],
)
def test_what_no_fleet_can_do_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTROL_TOWER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CONTROL_TOWER_PRICING", "off")
    done = CliRunner().invoke(run, f"eval --policy scripted {DEMO} --no-upload {options}".split())
    told = str(done.exception) if isinstance(done.exception, ExpectedError) else done.stderr
    assert done.exit_code != 0
    assert said in told
    assert "\n" not in told.strip() or isinstance(done.exception, SystemExit)
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_the_line_comes_when_it_changes_and_not_often(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = FleetLine("f00d", ends_after=600.0)
    for done in (0, 0, 1, 2):
        line.progress(Progress(done=done, total=3, completed=done))
    line.event("pause", {"why": "the budget is spent", "causes": []})
    line.event("result", {"job_id": "a"})
    line.progress(Progress(done=3, total=3, completed=3))
    line.progress(Progress(done=3, total=3, completed=3, mode="stop"))
    line.close()
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 3
    assert shown[0].startswith("[0/3]")
    assert shown[2].startswith("[3/3]")
    for words in (
        "paused: the budget is spent",
        "ct fleet set f00d budget_usd=",
        "ct fleet resume f00d",
        "10 minutes",
    ):
        assert words in shown[1]


def test_a_hard_budget_that_is_spent_says_what_ended_and_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = FleetLine("f00d")
    line.event("budget", {"spent_usd": 6.1, "budget_usd": 6.0, "hard": True})
    line.event("pause", {"why": "the hard budget is spent", "causes": []})
    line.close()
    ended, paused = capsys.readouterr().err.splitlines()
    then = "To go on: ct fleet set f00d budget_hard_usd=..., then ct fleet resume f00d"
    assert ended == f"warning: the hard budget is spent, $6.10 of $6: what runs is ended. {then}"
    assert paused == f"paused: the hard budget is spent. {then}"


def test_of_many_failed_jobs_the_first_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    line = FleetLine("f00d")
    for job in range(9):
        told = {
            "job_id": f"job{job}",
            "status": "failed",
            "failure_category": "timeout",
            "error_summary": "late",
        }
        line.event("job_done", told)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 5
    assert shown[0] == "failed: job job0 timeout: late; more: ct fleet why f00d job0"
