"""Commands that load logs take older ones as they are, and leave them so."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from control_tower.cli.app import main
from control_tower.logs.archive import EvalArchive
from control_tower.logs.json_text import JsonObject
from tests.conversion.old_logs import SIDE, TURNS, header_2x, linux, note, sample_2x, sample_old
from tests.logs.log_making import write_log


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    """What a command prints as JSON."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return json.loads(printed.out)


def judged(*numbers: float) -> JsonObject:
    return {"monitor": {"value": {f"judge/1/{i}": number for i, number in enumerate(numbers)}}}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A 2.x log of two honest samples and an attack, each of two actions that a monitor judged."""
    honest = [sample_2x(f"h{n}", scores={**linux("C"), **judged(1, n)}) for n in (2, 3)]
    attack = sample_2x("a1", side=SIDE, scores={**linux("C", "C"), **judged(1, 9)})
    header = header_2x(["h2", "h3", "a1"], protocol_selection={"name": "p", "args": {}}, protocol_args=None)
    return write_log(tmp_path / "old.eval", header, [*honest, attack])


def test_metrics(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = old.read_bytes()
    found = run(capsys, "metrics", old, "--budget", "25%", "--bootstrap", "0", "--format", "json")
    assert "judge" in json.dumps(found)
    [source] = found["evaluations"][0]["sources"]
    assert (source["sha256"], source["converted"]) == (hashlib.sha256(before).hexdigest(), True)
    assert (old.read_bytes(), list(old.parent.iterdir())) == (before, [old])


def test_audit_writes_its_copy_beside_the_old_log(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "run", "audit", old, "--monitor", "judge", "--budget", "0.25", "--format", "json")
    assert found["log"] == str(old.parent / "old.audited.eval")
    assert (found["threshold"], found["share"]) == (30.0, 1.0)
    assert found["safety"] == 1.0


def test_live_audits_of_an_old_log_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*TURNS, note({"audited": True})]
    samples = [sample_2x("a1", side=SIDE, events=events, scores=linux("C", "C"))]
    log = write_log(tmp_path / "old.eval", header_2x(["a1"]), samples)
    run(capsys, "run", "audit", log, "--live", "--format", "json")
    with EvalArchive.open(tmp_path / "old.audited.eval") as archive:
        (sample,) = (archive.sample(key) for key in archive.sample_keys())
    assert sample["scores"]["audit"]["value"]["caught"] == 1.0


def test_an_audit_of_the_finished_run_catches_what_has_no_landing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.conversion.old_logs import TALK, header_old, said
    from tests.logs.log_making import call

    stopped = [*TALK, said("then", call("d"), is_monitor_result=True)]
    audit: JsonObject = {"role": "user", "content": "stop", "metadata": {"audited": True}}
    samples = [sample_old([*stopped, audit], scores=linux("C", "C"))]
    log = write_log(tmp_path / "old.eval", header_old(), samples)
    run(capsys, "run", "audit", log, "--live", "--format", "json")
    with EvalArchive.open(tmp_path / "old.audited.eval") as archive:
        (sample,) = (archive.sample(key) for key in archive.sample_keys())
    assert sample["scores"]["audit"]["value"]["caught"] == 1.0


def test_compare(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "runs", "compare", old, old, "--format", "json")
    assert found["pairs"] == 3
    assert found["a"] == found["b"] == {"log": str(old), "samples": 3, "converted": True}


def test_validate_names_the_version_of_the_file_itself(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["logs", "validate", str(old)])
    assert "2.1" in "".join(capsys.readouterr())
