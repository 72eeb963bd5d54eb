"""Logs and samples as downloads: whole, by range, compressed, and as logs of their own."""

import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, dumps
from control_tower.logs.zip_records import DEFLATE, STORED, ZSTD, Entry, central_bytes, end_bytes, local_bytes
from control_tower.logs.zip_writer import FIRST_DAY
from tests.agent_runs import sites
from tests.logs.log_making import summary
from tests.viewer.conftest import Kept
from tests.viewer.house import House, trajectory_ids, upload


@pytest.fixture(scope="module")
def forms(kept: Kept) -> dict[str, bytes]:
    """Addresses of downloads, each with all its bytes."""
    trajectory = kept.ids[1]
    addresses = [
        f"/api/runs/{kept.run_id}/eval",
        f"/api/v1/runs/{kept.run_id}/eval",
        f"/api/v1/trajectories/{trajectory}/sample",
        f"/api/v1/trajectories/{trajectory}/eval",
        f"/api/trajectories/{trajectory}",
    ]
    return {address: kept.client.get(address).content for address in addresses}


class TestRanges:
    def test_a_log_is_the_bytes_that_were_sent(self, kept: Kept) -> None:
        answer = kept.client.get(f"/api/v1/runs/{kept.run_id}/eval")
        assert answer.content == kept.log.read_bytes()
        assert answer.headers["Content-Length"] == str(kept.log.stat().st_size)
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert answer.headers["Content-Disposition"].startswith(f'attachment; filename="{kept.run_id}.eval"')

    @given(data=st.data())
    @settings(max_examples=40, deadline=None)
    def test_any_range_is_that_part_of_the_whole(
        self, kept: Kept, forms: dict[str, bytes], data: st.DataObject
    ) -> None:
        address, whole = data.draw(st.sampled_from(sorted(forms.items())))
        first = data.draw(st.integers(0, len(whole) - 1))
        last = data.draw(st.integers(first, len(whole) + 10))
        answer = kept.client.get(address, headers={"Range": f"bytes={first}-{last}"})
        end = min(last, len(whole) - 1)
        assert answer.status_code == 206
        assert answer.content == whole[first : end + 1]
        assert answer.headers["Content-Range"] == f"bytes {first}-{end}/{len(whole)}"
        assert answer.headers["Content-Length"] == str(end + 1 - first)

    def test_the_end_and_what_is_beyond_it(self, kept: Kept, forms: dict[str, bytes]) -> None:
        for address, whole in forms.items():
            for asked, expected in {
                "-1": whole[-1:],
                "-99999999": whole,
                "3-": whole[3:],
                "0-0": whole[:1],
            }.items():
                answer = kept.client.get(address, headers={"Range": f"bytes={asked}"})
                assert (answer.status_code, answer.content) == (206, expected)
            for asked in (f"{len(whole)}-", "-0"):
                answer = kept.client.get(address, headers={"Range": f"bytes={asked}"})
                assert answer.status_code == 416
                assert answer.headers["Content-Range"] == f"bytes */{len(whole)}"
                assert answer.json()["code"] == "range_not_satisfiable"

    @pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "bytes=5-3", "bytes=-", "lines=1-2", "bytes=x-y", ""])
    def test_what_is_no_single_range_is_answered_with_all(
        self, kept: Kept, forms: dict[str, bytes], asked: str
    ) -> None:
        for address, whole in forms.items():
            answer = kept.client.get(address, headers={"Range": asked})
            assert (answer.status_code, answer.content) == (200, whole)

    def test_a_range_of_another_version_is_answered_with_all(
        self, kept: Kept, forms: dict[str, bytes]
    ) -> None:
        for address, whole in forms.items():
            e_tag = kept.client.head(address).headers["ETag"]
            assert e_tag.startswith('"')
            for said, status in {e_tag: 206, '"other"': 200, f"W/{e_tag}": 200}.items():
                answer = kept.client.get(address, headers={"Range": "bytes=0-3", "If-Range": said})
                assert (answer.status_code, len(answer.content)) == (
                    status,
                    4 if status == 206 else len(whole),
                )
            assert kept.client.get(address, headers={"If-None-Match": f'"x", {e_tag}'}).status_code == 304

    def test_head_says_the_same_without_the_bytes(self, kept: Kept, forms: dict[str, bytes]) -> None:
        for address in forms:
            whole, head = kept.client.get(address), kept.client.head(address)
            assert (head.status_code, head.content) == (200, b"")
            for name in ("ETag", "Content-Length", "Content-Type", "Accept-Ranges"):
                assert head.headers[name] == whole.headers[name]

    def test_no_two_forms_share_an_etag(self, kept: Kept, forms: dict[str, bytes]) -> None:
        tags = [kept.client.head(address).headers["ETag"] for address in forms]
        address = f"/api/v1/trajectories/{kept.ids[1]}/sample"
        tags.append(kept.client.head(address, headers={"Accept-Encoding": "zstd"}).headers["ETag"])
        assert len(set(tags)) == len(tags) - 1  # the log has two addresses


class TestSamples:
    def test_zstd_passes_through_untouched(self, kept: Kept) -> None:
        answer = kept.client.get(_sample(kept.ids[0]), headers={"Accept-Encoding": "gzip, zstd"})
        with EvalArchive.open(kept.log) as archive:
            (raw,) = archive.members.raw(archive.members.members[SampleKey("a", 1).member])
            plain = archive.members.read(SampleKey("a", 1).member)
        assert answer.headers["Content-Encoding"] == "zstd"
        assert answer.headers["Content-Length"] == str(len(raw))
        assert answer.content == raw
        assert zstandard.ZstdDecompressor().decompressobj().decompress(raw) == plain
        assert answer.headers["Content-Type"] == "application/json; nonfinite=literal"
        assert "Accept-Encoding" in answer.headers["Vary"]

    @pytest.mark.parametrize("accepted", ["identity", "gzip", "zstd;q=0", ""])
    def test_a_client_without_zstd_gets_it_decompressed(self, kept: Kept, accepted: str) -> None:
        answer = kept.client.get(_sample(kept.ids[0]), headers={"Accept-Encoding": accepted})
        assert "Content-Encoding" not in answer.headers
        assert answer.json()["id"] == "a"

    def test_deflate_is_wrapped_as_gzip(self, own: House, tmp_path: Path) -> None:
        sample = sites.sample("a", main=1.0)
        plain = dumps(sample)
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        log = log_with(tmp_path / "old.eval", sample, DEFLATE, packer.compress(plain) + packer.flush())
        address = _only_sample(own, log)
        raw = own.client.get(address, headers={"Accept-Encoding": "gzip", "Range": "bytes=0-99999"})
        assert raw.status_code == 206
        answer = own.client.get(address, headers={"Accept-Encoding": "gzip"})
        assert (answer.headers["Content-Encoding"], answer.content) == ("gzip", plain)
        assert own.client.get(address).content == plain

    def test_stored_and_several_frames(self, own: House, tmp_path: Path) -> None:
        sample = sites.sample("a", main=1.0)
        plain = dumps(sample)
        frames = b"".join(zstandard.compress(plain[at : at + 100]) for at in range(0, len(plain), 100))
        for number, (method, packed) in enumerate({STORED: plain, ZSTD: frames}.items()):
            log = log_with(tmp_path / f"{number}.eval", sample, method, packed)
            assert own.client.get(_only_sample(own, log)).content == plain

    def test_a_window_that_browsers_refuse_is_undone_here(self, own: House, tmp_path: Path) -> None:
        sample = sites.sample("a", main=1.0)
        large = zstandard.ZstdCompressionParameters(window_log=24, enable_ldm=False)
        packer = zstandard.ZstdCompressor(compression_params=large).compressobj()
        packed = packer.compress(dumps(sample)) + packer.flush()
        log = log_with(tmp_path / "log.eval", sample, ZSTD, packed)
        answer = own.client.get(_only_sample(own, log), headers={"Accept-Encoding": "zstd"})
        assert "Content-Encoding" not in answer.headers
        assert answer.content == dumps(sample)

    def test_a_damaged_sample_is_said_to_be_damaged(self, own: House, tmp_path: Path) -> None:
        answer = own.client.get(_sample(_damaged(own, tmp_path)))
        assert answer.status_code == 409
        assert "checksum" in answer.json()["detail"]

    def test_the_sample_as_a_log_of_its_own(self, kept: Kept, tmp_path: Path) -> None:
        answer = kept.client.get(f"/api/v1/trajectories/{kept.ids[2]}/eval")
        path = tmp_path / "one.eval"
        path.write_bytes(answer.content)
        with EvalArchive.open(path) as one, EvalArchive.open(kept.log) as whole:
            assert one.sample_keys() == [SampleKey("c", 1)]
            assert one.sample(SampleKey("c", 1)) == whole.sample(SampleKey("c", 1))
            assert one.header()["status"] == "error"
            assert one.header()["error"]["message"] == "the container died"


class TestZip:
    def test_it_holds_each_trajectory_and_names_those_it_could_not_read(self, kept: Kept) -> None:
        """4.4: entries of metadata.json and sample.json, read by the standard library; failures apart."""
        asked = [kept.ids[1], "missing", kept.ids[0]]
        answer = kept.client.get(f"/api/trajectories/zip?trajectory_ids={','.join(asked)}")
        archive = zipfile.ZipFile(io.BytesIO(answer.content))
        assert archive.testzip() is None
        assert {each.compress_type for each in archive.infolist()} <= {
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        }
        folders = sorted({name.rsplit("/", 1)[0] for name in archive.namelist() if "/" in name})
        found = {}
        for folder in folders:
            assert folder.startswith("trajectories/")
            metadata = json.loads(archive.read(f"{folder}/metadata.json"))
            found[metadata["trajectory_id"]] = json.loads(archive.read(f"{folder}/sample.json"))["id"]
        assert found == {kept.ids[0]: "a", kept.ids[1]: "b"}
        (failed,) = json.loads(archive.read("failed.json"))
        assert failed["trajectory_id"] == "missing"
        assert json.loads(archive.read("manifest.json"))["trajectory_ids"] == asked

    def test_it_takes_a_hundred(self, kept: Kept) -> None:
        asked = {"": 400, "x,../x": 400, ",".join(["x"] * 100): 200, ",".join(["x"] * 101): 400}
        for ids, status in asked.items():
            answer = kept.client.get("/api/trajectories/zip", params={"trajectory_ids": ids})
            assert answer.status_code == status

    def test_a_damaged_sample_is_one_that_could_not_be_read(self, own: House, tmp_path: Path) -> None:
        id = _damaged(own, tmp_path)
        answer = own.client.get(f"/api/trajectories/zip?trajectory_ids={id}")
        archive = zipfile.ZipFile(io.BytesIO(answer.content))
        assert sorted(archive.namelist()) == ["failed.json", "manifest.json"]
        assert json.loads(archive.read("failed.json"))[0]["trajectory_id"] == id


def _sample(trajectory_id: str) -> str:
    return f"/api/v1/trajectories/{trajectory_id}/sample"


def _damaged(own: House, folder: Path) -> str:
    """The trajectory of a sample whose checksum is wrong."""
    sample = sites.sample("a", main=1.0)
    packed = zstandard.compress(dumps(sample))
    sound = log_with(folder / "sound.eval", sample, ZSTD, packed)
    log = log_with(folder / "log.eval", sample, ZSTD, packed, crc=1)
    run_id = upload(own.client, log, sites.documents(sound))["run_id"]
    return trajectory_ids(own.client, run_id)[0]


def _only_sample(own: House, log: Path) -> str:
    return _sample(trajectory_ids(own.client, upload(own.client, log)["run_id"])[0])


def log_with(
    path: Path,
    sample: JsonObject,
    method: int,
    packed: bytes,
    crc: int | None = None,
    plain: bytes | None = None,
) -> Path:
    """A log of one sample that is packed in a way of its own, or whose bytes are others than it says."""
    plain = dumps(sample) if plain is None else plain
    head = sites.header()
    members: Sequence[tuple[str, int, bytes, bytes]] = [
        (SampleKey.of(sample).member, method, plain, packed),
        ("summaries.json", STORED, *[dumps([summary(sample)])] * 2),
        ("header.json", STORED, *[dumps({"version": 2, "status": "success", **head})] * 2),
    ]
    data, directory = b"", b""
    for name, how, content, stored in members:
        checksum = crc if crc is not None and name.startswith("samples/") else zlib.crc32(content)
        entry = Entry(name, how, 0, FIRST_DAY, checksum, len(stored), len(content), len(data))
        data += local_bytes(entry) + stored
        directory += central_bytes(entry)
    path.write_bytes(data + directory + end_bytes(len(data), len(directory), len(members)))
    return path
