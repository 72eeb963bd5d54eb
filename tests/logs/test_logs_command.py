"""`ct logs info` and `ct logs validate`."""

import json
from pathlib import Path

import pytest

from control_tower.cli.app import main
from tests.logs.log_making import write_log
from tests.logs.test_validate import both


def ct(*words: str) -> int:
    """Runs `ct logs` and gives its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["logs", *words])
    return int(str(ended.value.code))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that obeys the format."""
    header, *samples = both()
    return write_log(tmp_path / "log.eval", header, samples)


def test_info_says_what_a_log_is(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ct("info", str(log), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "log": str(log),
            "run": "attack-vs-null",
            "policy": "ct/attack-vs-ct/null",
            "format": "3.0",
            "status": "success",
            "created": "2026-01-01T00:00:00+00:00",
            "samples": 2,
            "missing": 0,
            "errored": 0,
            "unscored": 1,
            "finished": 1,
            "damage": [],
        }
    ]


def test_info_reads_torn_logs(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b"samples/demo/web:build_epoch_1.json") + 60])
    assert ct("info", str(log), "--format", "jsonl") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["status"], row["samples"], row["missing"]) == ("started", 2, 1)
    assert len(row["damage"]) == 1


def test_validate_ends_with_0_when_all_is_well(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ct("validate", str(log)) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "1 logs checked, 0 errors, 0 warnings\n"


def test_validate_ends_with_1_and_says_what_is_wrong(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = log.with_name("other.eval")
    other.write_bytes(b"{}")
    assert ct("validate", str(log), str(other), "--format", "json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [
        {
            "log": str(other),
            "level": "error",
            "rule": "archive",
            "where": "archive",
            "message": "it is JSON, not an .eval archive; `inspect log convert --to eval` makes one of it",
        }
    ]
    assert captured.err == "2 logs checked, 1 errors, 0 warnings\n"


def test_a_missing_log_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ct("info", str(tmp_path / "nothing.eval")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"Error: {tmp_path / 'nothing.eval'}: there is no such file\n"
    assert ct("validate") == 2
