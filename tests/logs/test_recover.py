"""`ct logs recover`: what is sound of a torn log becomes a log that Inspect opens; what was lost is named."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import HEADER, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.attempts import FINGERPRINT, read_attempt
from control_tower.logs.json_text import dumps
from control_tower.logs.recover import recover
from control_tower.logs.resume import resumable
from control_tower.logs.zip_reader import DamagedArchive
from control_tower.logs.zip_writer import new_archive
from tests.logs.small_evals import run_eval
from tests.logs.test_logs_command import ct


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log Inspect wrote: s1 to s4 score 1.125 to 4.125."""
    log = run_eval(
        tmp_path_factory.mktemp("whole"), ["s1", "s2", "s3", "s4"], metadata={FINGERPRINT: "f"}, max_samples=1
    )
    return Path(log.location.removeprefix("file://"))


@pytest.fixture
def log(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return Path(shutil.copy(whole, tmp_path / "log.eval"))


def offset(log: Path, member: str) -> int:
    with EvalArchive.open(log) as archive:
        return archive.members.members[member].offset


def truncate(log: Path, length: int) -> None:
    log.write_bytes(log.read_bytes()[:length])


def spoil(log: Path, member: str) -> int:
    """Zeroes within a member; its offset."""
    begins = offset(log, member)
    data = bytearray(log.read_bytes())
    data[begins + len(member) + 34 : begins + len(member) + 42] = bytes(8)
    log.write_bytes(bytes(data))
    return begins


def without(log: Path, *members: str, **added: Any) -> None:
    """The log without some members."""
    copy = log.with_name("copy.eval")
    with EvalArchive.open(log) as archive, new_archive(copy) as writer:
        for name in archive.members.members:
            if not name.startswith(members):
                writer.copy(archive.members, name)
        for name, value in added.items():
            writer.add(name, dumps(value))
    copy.replace(log)


def test_without_its_directory_a_log_keeps_everything(log: Path, whole: Path) -> None:
    with EvalArchive.open(log) as archive:
        header = archive.members.members[HEADER]
        end = archive.members.data_offset(header) + header.compressed_size
    truncate(log, end)
    before = log.read_bytes()
    found = recover(log)
    assert log.read_bytes() == before
    assert found.output == log.with_name("log-recovered.eval")
    assert (found.status, found.missing) == ("success", ())
    assert [d.member for d in found.damage] == [None]
    ours, theirs = read_eval_log(str(found.output)), read_eval_log(str(whole))
    assert ours.samples == theirs.samples
    assert ours.results == theirs.results
    assert ours.reductions == theirs.reductions
    assert ours.metadata.pop("recovered")["eval_id"] == theirs.eval.eval_id
    assert ours.metadata == theirs.metadata


def test_a_truncated_log_keeps_the_samples_before_the_cut(log: Path) -> None:
    begins = offset(log, "samples/s3_epoch_1.json")
    truncate(log, begins + 100)
    found = recover(log)
    assert [str(key) for key in found.samples] == ["s1", "s2"]
    assert [str(key) for key in found.missing] == ["s3", "s4"]
    assert [(d.member, d.offset, d.damage) for d in found.damage[1:]] == [
        ("samples/s3_epoch_1.json", begins, "it is cut off")
    ]
    recovered = read_eval_log(str(found.output))
    assert recovered.status == "error"
    assert recovered.error is not None
    assert recovered.error.message == "recovered from log.eval: 2 samples kept, 2 missing"
    assert recovered.results is not None
    assert recovered.results.scores[0].metrics["mean"].value == (1.125 + 2.125) / 2
    assert (recovered.results.total_samples, recovered.results.completed_samples) == (4, 2)
    assert recovered.stats.model_usage["mockllm/model"].total_tokens == 10
    assert recovered.metadata["recovered"] == {
        "log": "log.eval",
        "eval_id": read_attempt(log).eval_id,
        "status": "started",
        "damage": [{"member": d.member, "offset": d.offset, "damage": d.damage} for d in found.damage],
    }


def test_a_damaged_sample_costs_only_itself(log: Path) -> None:
    begins = spoil(log, "samples/s2_epoch_1.json")
    found = recover(log)
    assert [str(key) for key in found.samples] == ["s1", "s3", "s4"]
    assert [(d.member, d.offset) for d in found.damage] == [("samples/s2_epoch_1.json", begins)]
    recovered = read_eval_log(str(found.output))
    assert recovered.status == "error"
    assert recovered.results is not None
    assert recovered.results.scores[0].metrics["mean"].value == (1.125 + 3.125 + 4.125) / 3
    assert recovered.stats.model_usage["mockllm/model"].total_tokens == 20  # what the run spent, as recorded


@pytest.mark.parametrize("member", [SUMMARIES, START, "reductions.json"])
def test_what_stands_about_the_samples_is_rebuilt(log: Path, whole: Path, member: str) -> None:
    spoil(log, member)
    found = recover(log)
    assert (found.status, found.missing) == ("success", ())
    with EvalArchive.open(whole) as old, EvalArchive.open(found.output or log) as new:
        assert new.summaries() == old.summaries()
        assert new.json(START) == old.json(START) | {"eval": new.header()["eval"]}
        assert new.header()["results"] == old.header()["results"]
        assert new.json("reductions.json") == old.json("reductions.json")


def test_summaries_are_made_of_the_samples_where_the_journal_is_lost_too(log: Path, whole: Path) -> None:
    without(log, SUMMARIES, "_journal/summaries", HEADER)
    found = recover(log)
    with EvalArchive.open(whole) as old, EvalArchive.open(found.output or log) as new:
        wanted = {SampleKey.of(row): row["scores"] for row in old.summaries()}
        assert {SampleKey.of(row): row["scores"] for row in new.summaries()} == wanted
    assert read_eval_log(str(found.output)).status == "error"


def test_a_summary_without_its_sample_is_a_lost_sample(log: Path) -> None:
    without(log, "samples/s4")
    found = recover(log)
    assert [(d.member, d.damage) for d in found.damage] == [
        ("samples/s4_epoch_1.json", "it has a summary, but is not there")
    ]
    assert (found.status, [str(key) for key in found.missing]) == ("error", ["s4"])


def test_a_header_that_inspect_does_not_read_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    with new_archive(log) as writer:
        writer.add(START, dumps({"version": 2, "eval": {"task": ["no", "name"]}}))
        writer.add("samples/1_epoch_1.json", dumps({"id": 1, "epoch": 1, "input": "", "target": ""}))
    with pytest.raises(ValidationError, match=r"Inspect cannot read the log's header.*eval\.created"):
        recover(log)
    assert list(tmp_path.iterdir()) == [log]


class TestWithoutHeader:
    def test_it_is_named_with_the_way_out(self, log: Path) -> None:
        without(log, HEADER, START)
        with pytest.raises(DamagedArchive, match=r"neither header.* 4 of its samples .*--header-of"):
            recover(log)
        assert [path.name for path in log.parent.iterdir()] == ["log.eval"]

    def test_the_header_of_another_log_of_the_run_is_taken(self, log: Path, whole: Path) -> None:
        without(log, HEADER, START)
        found = recover(log, header_of=whole)
        recovered = read_eval_log(str(found.output))
        assert recovered.status == "error"
        assert len(recovered.samples or []) == 4
        assert recovered.results is not None
        assert recovered.results.scores[0].metrics["mean"].value == 2.625

    def test_but_not_that_of_another_run(self, log: Path, inspect_log: Path) -> None:
        without(log, HEADER, START)
        with pytest.raises(ValidationError, match="its header does not know sample s1"):
            recover(log, header_of=inspect_log)


def test_nothing_is_written_over(log: Path) -> None:
    truncate(log, log.stat().st_size - 5)
    log.with_name("log-recovered.eval").write_text("mine")
    with pytest.raises(StateError, match="is there already"):
        recover(log)
    with pytest.raises(StateError, match="is there already"):
        recover(log, log)
    assert log.with_name("log-recovered.eval").read_text() == "mine"


@pytest.mark.parametrize("data", [b"", b"{}", b"PK\x03\x04", b"\0" * 1000])
def test_what_is_no_log_is_refused(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "log.eval"
    log.write_bytes(data)
    with pytest.raises(DamagedArchive):
        recover(log)
    assert list(tmp_path.iterdir()) == [log]


def test_recovering_gives_the_same_bytes_each_time(log: Path) -> None:
    truncate(log, offset(log, "samples/s4_epoch_1.json"))
    outputs = [recover(log, log.with_name(f"{n}.eval")).output for n in range(2)]
    first, second = (output.read_bytes() for output in outputs if output)
    assert first == second


def test_a_recovered_run_is_resumed_in_place_of_the_damaged_one(log: Path) -> None:
    truncate(log, offset(log, "samples/s3_epoch_1.json") + 50)
    output = recover(log).output
    assert output is not None
    assert resumable(output).to_run == [("s3", 1), ("s4", 1)]
    with pytest.raises(StateError, match=r"log-recovered\.eval"):
        resumable(log)


class TestCommand:
    def test_it_says_what_was_kept_and_what_was_lost(
        self, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        begins = spoil(log, "samples/s2_epoch_1.json")
        output = log.with_name("out.eval")
        assert ct("recover", str(log), "-o", str(output), "--format", "json") == 0
        printed = capsys.readouterr()
        record = json.loads(printed.out)
        damage = record.pop("damage")
        assert record == {
            "log": str(log),
            "output": str(output),
            "status": "error",
            "samples": 3,
            "missing": ["s2"],
            "without_results": [],
        }
        assert [(d["member"], d["byte"]) for d in damage] == [("samples/s2_epoch_1.json", begins)]
        assert f"--resume {output}" in printed.err

    def test_a_whole_log_is_left_alone(self, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert ct("recover", str(log)) == 0
        assert capsys.readouterr().err == f"{log}: is whole; nothing was written\n"
        assert list(log.parent.iterdir()) == [log]

    def test_a_damaged_member_is_named_with_its_byte_and_the_way_out(
        self, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        begins = spoil(log, HEADER)
        assert ct("info", str(log)) == 1
        error = capsys.readouterr().err
        assert "member 'header.json': " in error
        assert f"(it begins at byte {begins}); `ct logs recover` keeps what is sound" in error
