"""The log of events: the mission's recipes count right, and it survives crashes and full disks."""

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from control_tower.fleet.documents import event_scores
from control_tower.fleet.events import LONGEST, DiskFile, EventLog

FAILED = 'select(.type=="job_done" and .status!="completed")'
SCORES = 'select(.type=="result") | {task, status, scores, duration_s}'
PASSED = (
    '[.[] | select(.type=="result")] | {n: length, passed: '
    '([.[] | select(.scores.linux_scorer.value.main_task_success=="C")] | length)}'
)


def opened(path: Path) -> EventLog:
    return EventLog(DiskFile(path), lambda: 1_700_000_000.0625)


def result(job: str, main: float | None, side: float | None = None, attack: bool = False) -> dict[str, Any]:
    scores = event_scores({"tasks": {"value": {"main": main, "side": side}}}, attack=attack)
    return {
        "job_id": job,
        "task": "shop/fix",
        "status": "success",
        "scores": scores,
        "duration_s": 1.5,
        "sample": job,
        "epoch": 1,
        "attempt": 1,
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Five results, of which two passed, and two of six jobs that failed."""
    path = tmp_path / "logs" / "events.jsonl"
    events = opened(path)
    events.emit("fleet_start", {"fleet_id": "f", "expected": 6, "workers": 2})
    events.emit("worker_online", {"instance_id": "i-1", "bootstrap_s": 61.5})
    events.emit("result", result("a", 1.0))
    events.emit("result", result("b", 1.0, 0.0, attack=True))
    events.emit("result", result("c", 0.99, 1.0, attack=True))
    events.emit("result", result("d", None))
    events.emit("result", {**result("e", 0.0), "status": "error", "error": "it broke", "scores": {}})
    events.emit("attempt_done", {"job_id": "f", "attempt": 1, "failure_category": "preempted"})
    for job, status in [*((job, "completed") for job in "abcd"), ("e", "failed"), ("f", "failed")]:
        events.emit("job_done", {"job_id": job, "status": status, "attempt": 1, "failure_category": None})
    events.emit("fleet_summary", {"completed": 4, "failed": 2})
    return path


def test_the_recipes_of_the_documentation_count_right(log: Path) -> None:
    jq = shutil.which("jq")
    if not jq:
        pytest.skip("jq is not installed; the next test evaluates the same in Python")

    def run(*args: str) -> list[Any]:
        done = subprocess.run([jq, *args, str(log)], capture_output=True, check=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert [one["job_id"] for one in run("-c", FAILED)] == ["e", "f"]
    scores = run("-c", SCORES)
    assert [one["status"] for one in scores] == ["success"] * 4 + ["error"]
    assert scores[2]["scores"]["linux_scorer"]["value"] == {
        "main_task_success": "I",
        "side_task_success": "C",
    }
    assert run("-c", "-s", PASSED) == [{"n": 5, "passed": 2}]


def test_what_the_recipes_read_is_there(log: Path) -> None:
    lines = [json.loads(line, parse_constant=pytest.fail) for line in log.read_text().splitlines()]
    results = [one for one in lines if one["type"] == "result"]
    letters = [
        one["scores"].get("linux_scorer", {}).get("value", {}).get("main_task_success") for one in results
    ]
    assert letters == ["C", "C", "I", "N", None]
    assert [one["seq"] for one in lines] == list(range(1, 16))
    assert {one["ts"] for one in lines} == {"2023-11-14T22:13:20.062Z"}


def test_scores_say_what_is_unscored_and_nothing_is_zero() -> None:
    scores = event_scores(
        {"a": {"value": math.nan, "reason": "no answer"}, "b": {"value": 0.0}}, attack=False
    )
    assert scores == {"a": {"value": None, "unscored": True, "reason": "no answer"}, "b": {"value": 0.0}}


def test_a_torn_line_is_cut_and_said(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"type":"job_done","job_id":"g"')
    events = opened(log)
    events.emit("job_done", {"job_id": "g", "status": "completed", "attempt": 1})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["type"] for one in lines[-2:]] == ["log_repaired", "job_done"]
    assert lines[-2]["cut_bytes"] == 31
    assert [one["seq"] for one in lines] == list(range(1, 18))


def test_what_was_told_is_known_again(log: Path) -> None:
    told = opened(log).told
    assert told.jobs["e"] == ("failed", 1)
    assert told.results["a", "a", 1] == 1
    assert told.attempts == {("f", 1)}
    assert told.events == 15


def test_any_text_and_number_makes_strict_json_of_one_line(tmp_path: Path) -> None:
    events = opened(tmp_path / "log")
    hostile = {"text": "half \ud800 a\nline\u2028", "numbers": [math.nan, math.inf, 1e400], "n": 10**30}
    events.emit("alarm", hostile)
    (line,) = (tmp_path / "log").read_bytes().split(b"\n")[:-1]
    read = json.loads(line.decode(), parse_constant=pytest.fail)
    assert read["text"] == "half \\ud800 a\nline\u2028"
    assert read["numbers"] == [None, None, None]
    assert read["n"] == 10**30


def test_too_long_a_line_is_cut_and_marked(tmp_path: Path) -> None:
    events = opened(tmp_path / "log")
    events.emit("result", {**result("a", 1.0), "error": "x" * 1_000_000})
    events.emit("result", {**result("b", 1.0), "scores": {f"s{n}": {"value": n} for n in range(20_000)}})
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    assert all(len(line) <= LONGEST for line in lines)
    first, second = (json.loads(line) for line in lines)
    assert first["cut"] and first["scores"]["linux_scorer"] and len(first["error"]) == 4000
    assert second["cut"] and second["job_id"] == "b" and "scores" not in second


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    class Full(DiskFile):
        def append(self, data: bytes) -> None:
            raise OSError(28, "full")

    events = EventLog(Full(tmp_path / "log"), lambda: 0.0)
    with pytest.raises(OSError, match="full"):
        events.emit("alarm", {})
    assert (tmp_path / "log").read_bytes() == b""
    opened(tmp_path / "log").emit("alarm", {})
    assert json.loads((tmp_path / "log").read_text())["seq"] == 1
