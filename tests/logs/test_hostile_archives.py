"""Archives that lie, are torn, or would exhaust the machine: named precisely, in bounded time and memory."""

import io
import random
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from control_tower.errors import ExpectedError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import dumps
from control_tower.logs.zip_reader import DamagedArchive, Limits, ZipReader
from control_tower.logs.zip_records import (
    DEFLATE,
    STORED,
    UTF8,
    ZSTD,
    Entry,
    central_bytes,
    end_bytes,
    local_bytes,
)
from control_tower.logs.zip_writer import new_archive
from control_tower.storage.source import BytesSource


def member(name: str, data: bytes, method: int = STORED, **lies: int) -> tuple[Entry, bytes]:
    """An entry at offset 0 and its compressed bytes, with fields replaced by `lies`."""
    compressed = {STORED: bytes, DEFLATE: deflated, ZSTD: zstandard.compress}[method](data)
    entry = Entry(name, method, UTF8, 0, zlib.crc32(data), len(compressed), len(data), 0)
    return entry._replace(**lies), compressed


def deflated(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


def built(*members: tuple[Entry, bytes], local: Callable[[Entry], bytes] = local_bytes) -> bytes:
    """An archive of such members; `local` makes their local headers."""
    body, directory = b"", b""
    for entry, data in members:
        directory += central_bytes(entry._replace(offset=len(body)))
        body += local(entry) + data
    return body + directory + end_bytes(len(body), len(directory), len(members))


def read(data: bytes, name: str = "header.json", limits: Limits | None = None) -> bytes:
    return ZipReader.open(BytesSource(data, "log.eval"), limits).read(name)


BAD = b"\x28\xb5\x2f\xfd" + b"\xff" * 30

CASES: dict[str, tuple[bytes, str]] = {
    "wrong checksum": (built(member("header.json", b"{}", crc=1)), "header.json': its checksum is wrong"),
    "says less than it holds": (
        built(member("header.json", b"x" * 9000, ZSTD, size=10)),
        "unpacks to more than the 10 bytes it says",
    ),
    "says more than it holds": (
        built(member("header.json", b"x" * 10, DEFLATE, size=11)),
        "unpacks to 10 bytes, not the 11 it says",
    ),
    "zstd rubbish": (
        built((Entry("header.json", ZSTD, 0, 0, 0, len(BAD), 50, 0), BAD)),
        "its zstd stream is damaged",
    ),
    "deflate rubbish": (
        built((Entry("header.json", DEFLATE, 0, 0, 0, len(BAD), 50, 0), b"\xff" * len(BAD))),
        "its deflate stream is damaged",
    ),
    "unknown method": (
        built(member("header.json", b"{}")).replace(b"\x00\x08\x00\x00", b"\x00\x08\x63\x00"),
        "compression method 99 is unknown (known: stored, deflate, zstd)",
    ),
    "encrypted": (built(member("header.json", b"{}", flags=1)), "header.json': it is encrypted"),
    "stored sizes differ": (built(member("header.json", b"{}", size=3)), "its two sizes differ"),
    "beyond the members": (
        built(member("header.json", b"{}", compressed_size=400, size=400)),
        "it reaches beyond the archive's members",
    ),
    "another name inside": (
        built(member("header.json", b"{}"), local=lambda e: local_bytes(e._replace(name="heider.json"))),
        "its local header says something else than the directory ('heider.json', 0)",
    ),
    "no local header": (
        built(member("header.json", b"{}"), local=lambda e: b"\0" * len(local_bytes(e))).replace(
            b"\0\0\0\0", b"PK\x03\x04", 1
        ),
        "something else than the directory",
    ),
    "traversal": (
        built(member("samples/../../x", b"")),
        "samples/../../x': such a name would leave the archive",
    ),
    "traversal with backslashes": (built(member("a\\..\\x", b"")), "such a name would leave the archive"),
    "absolute": (built(member("/etc/passwd", b"")), "/etc/passwd': such a name would leave the archive"),
    "no bytes": (b"", "log.eval: it is empty"),
    "no zip": (b"\x7fELF" + b"\0" * 100, "log.eval: it is not an .eval archive"),
    "a JSON log": (b'{"version": 2}' + b" " * 30, "it is JSON, not an .eval archive"),
    "not unicode": (
        built(member("headér.json", b"{}")).replace("é".encode(), b"\xff\xfe"),
        "is not UTF-8",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_named(name: str) -> None:
    data, message = CASES[name]
    with pytest.raises(DamagedArchive) as raised:
        reader = ZipReader.open(BytesSource(data, "log.eval"))
        reader.read(next(iter(reader.members)))
    assert message in str(raised.value)
    assert str(raised.value).startswith("log.eval")


def test_members_may_not_overlap() -> None:
    entry, data = member("a", b"{}" * 20)
    inner = central_bytes(entry._replace(name="b", offset=10))
    body = local_bytes(entry) + data
    directory = central_bytes(entry) + inner
    archive = body + directory + end_bytes(len(body), len(directory), 2)
    with pytest.raises(DamagedArchive, match=r"reaches beyond|overlaps member 'a'"):
        read(archive, "a")


def test_one_member_may_not_stand_in_the_directory_twice() -> None:
    entry, data = member("a", b"{}")
    body = local_bytes(entry) + data
    directory = central_bytes(entry) * 2
    with pytest.raises(DamagedArchive, match="it overlaps member 'a'"):
        read(body + directory + end_bytes(len(body), len(directory), 2), "a")


def test_data_may_not_run_into_the_next_local_header() -> None:
    first, first_data = member("a", b"{}")
    second, second_data = member("b", b"{}")
    long_header = local_bytes(first)[:28] + struct.pack("<H", 20) + b"a"
    body = long_header + first_data
    directory = central_bytes(first) + central_bytes(second._replace(offset=len(body)))
    body += local_bytes(second) + second_data
    with pytest.raises(DamagedArchive, match="member 'a': it overlaps what follows it"):
        read(body + directory + end_bytes(len(body), len(directory), 2), "a")


class TestCost:
    def test_a_bomb_is_refused_by_what_it_says(self) -> None:
        bomb = built(member("header.json", b"", ZSTD, size=5 * 1024**4))
        with pytest.raises(
            DamagedArchive, match="unpacks to 5497558138880 bytes; at most 1073741824 are read"
        ):
            read(bomb)

    @pytest.mark.parametrize("method", [ZSTD, DEFLATE])
    def test_a_bomb_that_lies_costs_no_more_than_it_says(self, method: int) -> None:
        bomb = built(member("header.json", b"\0" * (256 * 1024**2), method, size=1000))
        tracemalloc.start()
        began = time.process_time()
        with pytest.raises(DamagedArchive, match="more than the 1000 bytes"):
            read(bomb)
        assert time.process_time() - began < 2
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024**2
        tracemalloc.stop()

    def test_too_many_members(self) -> None:
        entries = b"".join(central_bytes(Entry(f"{n}", STORED, 0, 0, 0, 0, 0, 0)) for n in range(200_000))
        archive = b"PK\x03\x04" + entries + end_bytes(4, len(entries), 200_000)
        began = time.process_time()
        with pytest.raises(DamagedArchive, match="it holds 200000 members; at most 100000 are read"):
            read(archive)
        assert time.process_time() - began < 2

    def test_a_directory_with_more_entries_than_it_says(self) -> None:
        entries = b"".join(central_bytes(Entry(f"{n}", STORED, 0, 0, 0, 0, 0, 0)) for n in range(200_000))
        archive = b"PK\x03\x04" + entries + end_bytes(4, len(entries), 10)
        with pytest.raises(DamagedArchive, match="the directory holds 11 entries but says 10"):
            read(archive)

    def test_a_directory_too_large_to_read(self) -> None:
        with pytest.raises(DamagedArchive, match="its directory takes"):
            read(built(member("header.json", b"{}")), limits=Limits(directory_bytes=10))

    def test_looking_for_members_has_an_end(self) -> None:
        fake = local_bytes(Entry("a", STORED, 0, 0, 0, 400_000, 400_000, 0))
        archive = fake * 20_000
        began = time.process_time()
        with pytest.raises(DamagedArchive, match="too damaged"):
            ZipReader.salvage(BytesSource(archive, "log.eval"))
        assert time.process_time() - began < 5

    def test_json_too_deep_to_read(self) -> None:
        archive = EvalArchive.open(
            BytesSource(built(member("header.json", b"[" * 100_000, ZSTD)), "log.eval")
        )
        with pytest.raises(ValidationError, match=r"header\.json': it is nested too deeply"):
            archive.header()


class TestContent:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"{", "it is not JSON"),
            (b"\xff", "it is not UTF-8"),
            (b"[1]", "it is not a JSON object"),
            (b'{"eval": 1}', "it has no `eval` object"),
            (b'{"eval": {}, "n": ' + b"9" * 5000 + b"}", "it cannot be read"),
        ],
    )
    def test_a_header_that_is_none(self, content: bytes, message: str) -> None:
        archive = EvalArchive.open(BytesSource(built(member("header.json", content)), "log.eval"))
        with pytest.raises(ValidationError, match=message):
            archive.header()

    def test_an_archive_that_is_no_log(self) -> None:
        archive = EvalArchive.open(BytesSource(built(member("readme.txt", b"hello")), "log.eval"))
        with pytest.raises(ValidationError, match=r"neither header\.json nor _journal/start\.json"):
            archive.header()

    @pytest.mark.parametrize(
        "content", [b"[1]", b"{}", b'[{"epoch": 1}]', b'[{"id": 1, "epoch": "x"}]', b"[null]"]
    )
    def test_summaries_that_are_none(self, content: bytes) -> None:
        archive = EvalArchive.open(BytesSource(built(member("summaries.json", content)), "log.eval"))
        with pytest.raises(ValidationError, match="not a list of sample summaries"):
            archive.summaries()

    def test_a_sample_that_is_not_there(self) -> None:
        archive = EvalArchive.open(BytesSource(built(member("header.json", b'{"eval": {}}')), "log.eval"))
        with pytest.raises(KeyError):
            archive.sample(SampleKey("a", 1))


class TestTorn:
    def log(self, tmp_path: Path) -> bytes:
        path = tmp_path / "whole.eval"
        with new_archive(path) as writer:
            writer.add("_journal/start.json", dumps({"eval": {"task": "t"}}))
            for number in range(5):
                writer.add(
                    f"samples/{number}_epoch_1.json",
                    dumps({"id": number, "text": random.Random(number).random()}),
                )
                writer.add(f"_journal/summaries/{number + 1}.json", dumps([{"id": number, "epoch": 1}]))
        return path.read_bytes()

    def test_every_prefix_is_refused_and_salvaged(self, tmp_path: Path) -> None:
        whole = self.log(tmp_path)
        full = set(ZipReader.open(BytesSource(whole)).members)
        kept_before = 0
        for length in range(1, len(whole), 7):
            torn = BytesSource(whole[:length], "torn.eval")
            with pytest.raises(
                DamagedArchive, match=r"torn\.eval: .*cut off|not an \.eval|bytes are missing"
            ):
                ZipReader.open(torn)
            salvaged = ZipReader.salvage(torn)
            assert set(salvaged.members) <= full
            assert len(salvaged.members) >= kept_before
            kept_before = len(salvaged.members)
            for name in salvaged.members:
                salvaged.read(name)
        assert kept_before == len(full)

    def test_a_salvaged_log_gives_its_header_and_samples(self, tmp_path: Path) -> None:
        whole = self.log(tmp_path)
        torn = whole[: whole.index(b"samples/3_epoch_1.json") + 30]
        with EvalArchive.salvage(BytesSource(torn, "torn.eval")) as archive:
            assert archive.header()["eval"] == {"task": "t"}
            assert archive.sample_keys() == [SampleKey(str(number), 1) for number in range(3)]
            assert [row["id"] for row in archive.summaries()] == [0, 1, 2]
            assert [(found.member, found.damage) for found in archive.damage] == [
                ("samples/3_epoch_1.json", "it is cut off")
            ]

    def test_a_torn_member_costs_only_itself(self, tmp_path: Path) -> None:
        whole = bytearray(self.log(tmp_path))
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            offset = archive.getinfo("samples/2_epoch_1.json").header_offset + 60
        whole[offset : offset + 4] = b"\0\0\0\0"
        with EvalArchive.open(BytesSource(bytes(whole), "log.eval")) as archive:
            with pytest.raises(DamagedArchive, match=r"samples/2_epoch_1\.json"):
                archive.verify("samples/2_epoch_1.json")
            archive.verify("samples/3_epoch_1.json")
        salvaged = EvalArchive.salvage(BytesSource(bytes(whole), "log.eval"))
        assert SampleKey("2", 1) not in salvaged.sample_keys()
        assert len(salvaged.sample_keys()) == 4

    def test_bytes_added_at_the_end_or_the_start(self, tmp_path: Path) -> None:
        whole = self.log(tmp_path)
        for torn in (whole + b"\0" * 100, b"PK\x03\x04" + whole):
            with pytest.raises(DamagedArchive):
                ZipReader.open(BytesSource(torn, "log.eval"))
            assert len(ZipReader.salvage(BytesSource(torn)).members) == 11

    @given(data=st.data())
    @settings(max_examples=300, deadline=None)
    def test_any_change_gives_the_content_or_an_expected_error(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        whole = self.log(tmp_path_factory.mktemp("torn"))
        content = {name: read(whole, name) for name in ZipReader.open(BytesSource(whole)).members}
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        try:
            reader = ZipReader.open(BytesSource(bytes(changed), "log.eval"))
        except ExpectedError:
            return
        for name in reader.members:
            try:
                found = reader.read(name)
            except ExpectedError:
                continue
            assert name not in content or found == content[name]
