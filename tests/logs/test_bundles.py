"""One sample as a log of its own, and as a range of bytes."""

import shutil
import zlib
from pathlib import Path

import pytest
import zstandard
from inspect_ai.log import read_eval_log, read_eval_log_sample

from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.bundles import bundle, bundle_path, sample_range
from control_tower.logs.json_text import loads
from control_tower.logs.validate import validate_log
from tests.logs.log_making import write_log
from tests.logs.test_logs_command import ct
from tests.logs.test_validate import both


class TestBundle:
    def test_inspect_reads_it_as_it_reads_the_sample(self, inspect_log: Path, tmp_path: Path) -> None:
        path = bundle(inspect_log, SampleKey("b/3", 2), tmp_path / "one.eval")
        one, whole = read_eval_log(str(path)), read_eval_log(str(inspect_log))
        assert one.samples == [read_eval_log_sample(str(inspect_log), "b/3", 2)]
        assert (one.eval.dataset.samples, one.eval.dataset.sample_ids) == (1, ["b/3"])
        assert one.results is not None
        assert (one.results.total_samples, one.results.completed_samples) == (1, 1)
        assert one.results.scores[0].metrics["mean"].value == 3.25
        assert one.stats.model_usage["mockllm/model"].total_tokens == 5
        assert (one.status, one.error) == ("success", None)
        assert one.eval.eval_id != whole.eval.eval_id
        assert one.eval.metadata == {"bundle_of": {"log": inspect_log.name, "eval_id": whole.eval.eval_id}}

    def test_an_errored_sample(self, inspect_log: Path, tmp_path: Path) -> None:
        one = read_eval_log(str(bundle(inspect_log, SampleKey("a2", 2), tmp_path / "one.eval")))
        assert one.status == "error"
        assert one.error is not None
        assert "broken on purpose" in one.error.message

    def test_it_obeys_the_format_where_the_log_does(self, tmp_path: Path) -> None:
        header, *samples = both()
        log = write_log(tmp_path / "log.eval", header, samples)
        for sample in samples:
            assert validate_log(bundle(log, SampleKey.of(sample))) == []

    def test_the_samples_bytes_are_copied(self, inspect_log: Path, tmp_path: Path) -> None:
        key = SampleKey("a1", 1)
        path = bundle(inspect_log, key, tmp_path / "one.eval")
        with EvalArchive.open(inspect_log) as whole, EvalArchive.open(path) as one:
            raw = [b"".join(a.members.raw(a.members.members[key.member])) for a in (whole, one)]
        assert raw[0] == raw[1]

    def test_a_sample_of_a_torn_log(self, inspect_log: Path, tmp_path: Path) -> None:
        torn = tmp_path / "torn.eval"
        torn.write_bytes(inspect_log.read_bytes()[:-100])
        one = read_eval_log(str(bundle(torn, SampleKey("a1", 1))))
        assert one.samples == [read_eval_log_sample(str(inspect_log), "a1", 1)]

    def test_unknown_samples_and_outputs_that_are_there_are_refused(
        self, inspect_log: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(ValidationError, match="there is no sample a11; did you mean 'a1'"):
            bundle(inspect_log, SampleKey("a11", 1), tmp_path / "one.eval")
        with pytest.raises(ValidationError, match=r"there is no sample a1 \(epoch 3\); it has epochs 1, 2"):
            bundle(inspect_log, SampleKey("a1", 3), tmp_path / "one.eval")
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(StateError, match="is there already"):
            bundle(inspect_log, SampleKey("a1", 1), inspect_log)

    @pytest.mark.parametrize(
        ("id", "epoch", "name"),
        [
            ("b/3", 2, "log-b-3-epoch-2.eval"),
            ("../../x", 1, "log-x.eval"),
            ("ü", 1, "log-sample.eval"),
            ("y" * 300, 1, f"log-{'y' * 100}.eval"),
        ],
    )
    def test_its_name(self, id: str, epoch: int, name: str) -> None:
        assert bundle_path(Path("logs/log.eval"), SampleKey(id, epoch)) == Path("logs") / name

    def test_the_command_prints_where_it_is(
        self, inspect_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = Path(shutil.copy(inspect_log, tmp_path / "log.eval"))
        assert ct("bundle", str(log), "b/3", "--epoch", "2") == 0
        assert capsys.readouterr().out == f"{tmp_path / 'log-b-3-epoch-2.eval'}\n"


class TestRange:
    def test_the_bytes_it_names_are_the_sample(self, inspect_log: Path) -> None:
        key = SampleKey("b/3", 2)
        with EvalArchive.open(inspect_log) as archive:
            found = sample_range(archive, key, stored_as="logs/x.eval", e_tag='"abc"', version_id="v1")
            sample = archive.sample(key)
        stored = inspect_log.read_bytes()
        start = found["compressedStart"]
        plain = (
            zstandard.ZstdDecompressor()
            .decompressobj()
            .decompress(stored[start : start + found["compressedSize"]])
        )
        assert loads(plain) == sample
        assert (found["uncompressedSize"], found["crc32"]) == (len(plain), zlib.crc32(plain))
        assert found["samplePath"] == "samples/b/3_epoch_2.json"
        assert found["compressionMethod"] == 93
        assert [found.get(field) for field in ("key", "eTag", "versionId")] == ["logs/x.eval", '"abc"', "v1"]

    def test_no_version_is_no_key(self, inspect_log: Path) -> None:
        with EvalArchive.open(inspect_log) as archive:
            found = sample_range(archive, SampleKey("a1", 1), stored_as="k", e_tag="e")
        assert "versionId" not in found

    def test_a_sample_that_is_not_there(self, inspect_log: Path) -> None:
        with (
            EvalArchive.open(inspect_log) as archive,
            pytest.raises(ValidationError, match="there is no sample"),
        ):
            sample_range(archive, SampleKey("zz", 1), stored_as="k", e_tag="e")
