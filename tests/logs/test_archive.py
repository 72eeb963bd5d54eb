"""Reading and writing .eval logs member by member."""

import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.logs.archive import HEADER, EvalArchive, SampleKey, edit_header
from control_tower.logs.json_text import dumps, loads
from control_tower.logs.zip_reader import ZipReader
from control_tower.logs.zip_writer import ZipWriter, new_archive, replacing
from control_tower.storage.source import BytesSource, FileSource


def joined(text: str) -> str:
    """`text` with its surrogate pairs as the characters they mean, as any JSON round trip gives it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.text(st.characters(codec=None, categories=None), max_size=20).map(joined)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


class TestInspectsLogs:
    def test_header_summaries_and_samples_are_what_inspect_reads(self, inspect_log: Path) -> None:
        theirs = read_eval_log(str(inspect_log))
        with EvalArchive.open(inspect_log) as archive:
            assert archive.finished
            assert archive.header()["eval"]["eval_id"] == theirs.eval.eval_id
            assert archive.header()["status"] == "success"
            keys = [SampleKey(str(sample.id), sample.epoch) for sample in theirs.samples or []]
            assert sorted(archive.sample_keys()) == sorted(keys)
            assert sorted(map(SampleKey.of, archive.summaries())) == sorted(keys)
            for sample in theirs.samples or []:
                ours = archive.sample(SampleKey(str(sample.id), sample.epoch))
                assert ours["uuid"] == sample.uuid
                assert len(ours["events"]) == len(sample.events)

    def test_copying_every_member_gives_a_log_inspect_reads_alike(
        self, inspect_log: Path, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy.eval"
        with EvalArchive.open(inspect_log) as archive, new_archive(copy) as writer:
            for name in archive.members.members:
                writer.copy(archive.members, name)
        ours, theirs = read_eval_log(str(copy)), read_eval_log(str(inspect_log))
        assert ours.model_dump() == theirs.model_dump()
        one = read_eval_log_sample(str(copy), "b/3", 2)
        assert one.store == {"note": "x" * 300}
        assert read_eval_log_sample_summaries(str(copy)) == read_eval_log_sample_summaries(str(inspect_log))

    def test_header_edit_touches_nothing_else(self, inspect_log: Path, tmp_path: Path) -> None:
        edited = tmp_path / "edited.eval"

        def change(header: dict[str, Any]) -> dict[str, Any]:
            header["eval"]["metadata"] = {"note": "café \ud800", "nan": math.nan}
            return header

        edit_header(inspect_log, change, output=edited)
        with EvalArchive.open(inspect_log) as old, EvalArchive.open(edited) as new:
            metadata = new.header()["eval"]["metadata"]
            assert metadata["note"] == "café \ud800"
            assert math.isnan(metadata["nan"])
            assert set(old.members.members) == set(new.members.members)
            assert "metadata" not in new.header()
            for name in set(old.members.members) - {HEADER}:
                before, after = old.members.members[name], new.members.members[name]
                assert b"".join(old.members.raw(before)) == b"".join(new.members.raw(after))

    def test_an_edit_in_place_keeps_the_files_mode(self, inspect_log: Path, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        path.write_bytes(inspect_log.read_bytes())
        path.chmod(0o640)
        edit_header(path, lambda header: {**header, "invalidated": True})
        assert read_eval_log(str(path), header_only=True).invalidated
        assert path.stat().st_mode & 0o777 == 0o640
        assert [p.name for p in tmp_path.iterdir()] == ["log.eval"]

    def test_stdlib_reads_what_we_write(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with new_archive(path) as writer:
            writer.add("samples/ü_epoch_1.json", b"{}" * 1000)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert archive.namelist() == ["samples/ü_epoch_1.json"]


class TestOtherArchives:
    def test_stored_and_deflated_members_are_read_and_copied(self, tmp_path: Path) -> None:
        path, copy = tmp_path / "log.eval", tmp_path / "copy.eval"
        text = json.dumps({"eval": {"task": "old"}, "text": "long " * 100_000}).encode()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", text, zipfile.ZIP_DEFLATED)
            archive.writestr("samples/1_epoch_1.json", b'{"id": 1, "epoch": 1}', zipfile.ZIP_STORED)
        with EvalArchive.open(path) as archive, new_archive(copy) as writer:
            assert archive.header()["text"] == "long " * 100_000
            assert archive.sample(SampleKey("1", 1)) == {"id": 1, "epoch": 1}
            for name in archive.members.members:
                writer.copy(archive.members, name)
        with zipfile.ZipFile(copy) as archive:
            assert archive.read("header.json") == text

    def test_members_written_to_a_stream_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as pipe, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", b'{"eval": {}}')
        with os.fdopen(reading, "rb") as pipe:
            path.write_bytes(pipe.read())
        with EvalArchive.open(path) as archive:
            assert archive.header() == {"eval": {}}

    def test_of_members_with_one_name_the_last_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("header.json", b'{"eval": {}, "status": "started"}')
            archive.writestr("header.json", b'{"eval": {}, "status": "success"}')
        with EvalArchive.open(path) as archive:
            assert archive.header()["status"] == "success"

    def test_an_unfinished_log_gives_its_start_and_journal(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with new_archive(path) as writer:
            writer.add("_journal/start.json", dumps({"version": 2, "eval": {"task": "t"}, "plan": {}}))
            writer.add("_journal/summaries/10.json", dumps([{"id": 1, "epoch": 1, "run": "new"}]))
            writer.add("_journal/summaries/9.json", dumps([{"id": 1, "run": "old"}, {"id": "b", "epoch": 2}]))
            writer.add("_journal/config_updates/1.json", dumps({"limit": 3}))
        with EvalArchive.open(path) as archive:
            assert not archive.finished
            header = archive.header()
            assert (header["status"], header["eval"], header["config_updates"]) == (
                "started",
                {"task": "t"},
                [{"limit": 3}],
            )
            assert archive.summaries() == [{"id": "b", "epoch": 2}, {"id": 1, "epoch": 1, "run": "new"}]

    def test_keys_of_awkward_ids(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        keys = [SampleKey(id, 3) for id in ("a/b:c+d~1", "x_epoch_2", "ünïcode id?#%", "1", "line\nbreak")]
        with new_archive(path) as writer:
            for key in keys:
                writer.add(key.member, dumps({"id": key.id}))
            writer.add("samples/notes.txt", b"")
        with EvalArchive.open(path) as archive:
            assert archive.sample_keys() == keys
            assert [archive.sample(key)["id"] for key in keys] == [key.id for key in keys]

    def test_samples_in_chunks_are_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with new_archive(path) as writer:
            writer.add("samples/a_epoch_1/sample.json", b"{}")
        with EvalArchive.open(path) as archive, pytest.raises(ValidationError, match="chunks"):
            archive.sample(SampleKey("a", 1))


class TestRoundTrip:
    @given(st.dictionaries(names, st.binary(max_size=2000), max_size=8))
    @settings(max_examples=60, deadline=None)
    def test_members(self, tmp_path_factory: pytest.TempPathFactory, members: dict[str, bytes]) -> None:
        members = {f"samples/{name.replace('..', '.').lstrip('/')}x": data for name, data in members.items()}
        path = tmp_path_factory.mktemp("round") / "log.eval"
        with new_archive(path) as writer:
            for name, data in members.items():
                writer.add(name, data)
        with ZipReader.open(FileSource(path)) as reader:
            assert list(reader.members) == list(members)
            assert {name: reader.read(name) for name in members} == members
        with ZipReader.salvage(FileSource(path)) as reader:
            assert {name: reader.read(name) for name in reader.members} == members
            assert reader.damage == ()

    @given(json_values)
    @settings(max_examples=200, deadline=None)
    def test_json(self, value: Any) -> None:
        assert loads(dumps(value)) == value

    def test_nan_infinities_and_lone_surrogates(self) -> None:
        text = dumps({"a": [math.nan, math.inf, -math.inf], "b": "\ud83d!\udc00"})
        assert text == b'{"a":[NaN,Infinity,-Infinity],"b":"\\ud83d!\\udc00"}'
        value = loads(text)
        assert math.isnan(value["a"][0])
        assert value["a"][1:] == [math.inf, -math.inf]
        assert value["b"] == "\ud83d!\udc00"

    def test_a_string_of_ten_mebibytes(self, tmp_path: Path) -> None:
        path, long = tmp_path / "log.eval", "é\n" * (5 * 1024 * 1024)
        with new_archive(path) as writer:
            writer.add("samples/a_epoch_1.json", dumps({"id": "a", "text": long}))
        with EvalArchive.open(path) as archive:
            assert archive.sample(SampleKey("a", 1))["text"] == long

    def test_equal_members_give_equal_bytes(self, tmp_path: Path) -> None:
        paths = [tmp_path / "a.eval", tmp_path / "b.eval"]
        for path in paths:
            with new_archive(path) as writer:
                writer.add("header.json", b"{}" * 1000)
        assert paths[0].read_bytes() == paths[1].read_bytes()

    def test_more_members_than_a_small_directory_can_count(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with new_archive(path) as writer:
            for number in range(66_000):
                writer.add(f"samples/{number}_epoch_1.json", b"{}")
        with EvalArchive.open(path) as archive:
            assert len(archive.sample_keys()) == 66_000
            assert archive.sample(SampleKey("65999", 1)) == {}
        with zipfile.ZipFile(path) as stdlib:
            assert len(stdlib.namelist()) == 66_000

    def test_two_members_of_one_name_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="already"), new_archive(tmp_path / "log.eval") as writer:
            writer.add("a", b"")
            writer.add("a", b"")
        assert list(tmp_path.iterdir()) == []


class TestWriting:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        path.write_bytes(b"old")
        with pytest.raises(RuntimeError, match="stop"), replacing(path) as file:
            file.write(b"new")
            raise RuntimeError("stop")
        assert path.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["log.eval"]

    def test_a_link_is_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "link.eval").symlink_to(tmp_path / "real.eval")
        with replacing(tmp_path / "link.eval") as file:
            file.write(b"new")
        assert (tmp_path / "link.eval").is_symlink()
        assert (tmp_path / "real.eval").read_bytes() == b"new"

    def test_a_full_disk_is_said_and_leaves_nothing(self, tmp_path: Path) -> None:
        class Full(ZipWriter):
            def _write(self, data: bytes) -> None:
                raise OSError(28, "No space left on device")

        message = r"log\.eval: cannot be written: No space"
        with pytest.raises(OperationError, match=message), replacing(tmp_path / "log.eval") as file:
            Full(file).add("a", b"b")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_made_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with (
            pytest.raises(OperationError, match="cannot be written"),
            new_archive(tmp_path / "file" / "log.eval"),
        ):
            pass


class TestSources:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(StateError, match=r"nothing\.eval: there is no such file"):
            EvalArchive.open(tmp_path / "nothing.eval")

    def test_a_replaced_file_is_read_as_it_was(self, inspect_log: Path, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        path.write_bytes(inspect_log.read_bytes())
        with EvalArchive.open(path) as archive:
            with new_archive(path) as writer:
                writer.add("other", b"")
            assert archive.header()["status"] == "success"
            for key in archive.sample_keys():
                archive.sample(key)

    def test_a_file_edited_in_place_is_refused(self, inspect_log: Path, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        path.write_bytes(inspect_log.read_bytes())
        with EvalArchive.open(path) as archive:
            with path.open("ab") as file:
                file.write(b"more")
            with pytest.raises(OperationError, match="changed while it was being read"):
                archive.header()

    def test_bytes_in_memory(self, inspect_log: Path) -> None:
        with EvalArchive.open(BytesSource(inspect_log.read_bytes(), "upload")) as archive:
            assert archive.name == "upload"
            assert len(archive.sample_keys()) == 6
