"""An uploaded log is looked at by a few reads, and refused with a reason where it cannot become a run."""

import hashlib
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_tower.agent_runs.errors import BadRequest, NotFound
from control_tower.agent_runs.ingest import ArchiveFacts, inspect_archive
from control_tower.agent_runs.site import Site
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.bundles import sample_range
from control_tower.logs.json_text import JsonObject, dumps
from control_tower.logs.zip_records import central_bytes, end_bytes, local_bytes
from control_tower.storage.blobs import Blob, Blobs
from control_tower.storage.source import ByteSource
from tests.agent_runs.sites import ANN, header, log, pieces, sample, upload
from tests.logs.log_making import summary
from tests.logs.test_hostile_archives import DEFLATE, STORED, ZSTD, built, member

pytestmark = pytest.mark.anyio

A = sample("a", main=1.0)
IN_A = "samples/a_epoch_1.json"


async def keep(site: Site, data: bytes) -> str:
    """The digest of what is kept."""
    upload_id = hashlib.sha256(data).hexdigest()[:32]
    await site.blobs.put_part(upload_id, 1, pieces(data, 1_000_000), sha256=None, size=None)
    return (await site.blobs.assemble(upload_id)).sha256


async def inspect(site: Site, data: bytes) -> ArchiveFacts:
    """What is found of these bytes."""
    return await inspect_archive(site, await keep(site, data))


def archive(
    *more: Any,
    head: Any = None,
    summaries: Any = None,
    without: tuple[str, ...] = (),
    method: int = ZSTD,
    first: Sequence[Any] = (),
) -> bytes:
    """A log of sample `a`, with members replaced, added or left out."""
    whole = {"version": 2, "status": "success", **header()} if head is None else head
    rows = [summary(A)] if summaries is None else summaries
    members = {
        IN_A: dumps(A),
        "summaries.json": rows if isinstance(rows, bytes) else dumps(rows),
        "header.json": whole if isinstance(whole, bytes) else dumps(whole),
    }
    kept = [member(name, data, method) for name, data in members.items() if name not in without]
    return built(*first, *kept, *more)


def lying(**lies: int) -> bytes:
    """A log with a sample whose directory entry lies."""
    return archive(member(IN_A, dumps(A), ZSTD, **lies), without=(IN_A,))


HEAD: JsonObject = {"version": 2, "status": "success", **header()}
DEEP = b'[{"id":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no zip": (lambda: b"\x7fELF" + b"\0" * 100, "the log: it is not an .eval archive"),
    "a JSON log": (lambda: b'{"version": 2}' + b" " * 30, "the log: it is JSON, not an .eval archive"),
    "torn": (lambda: archive()[:-30], "`ct logs recover`"),
    "trailing junk": (lambda: archive() + b"junk", "`ct logs recover`"),
    "encrypted": (lambda: lying(flags=1), "'samples/a_epoch_1.json': it is encrypted"),
    "unknown method": (
        lambda: archive().replace(b"\x5d\0\0\0", b"\x0c\0\0\0"),
        "compression method 12 is not stored, deflate or zstd",
    ),
    "traversal": (lambda: archive(member("../x", b"")), "'../x': such a name would leave the archive"),
    "absolute": (lambda: archive(member("/x", b"")), "'/x': such a name would leave the archive"),
    "NUL": (lambda: archive(member("a\0b", b"")), "such a name would leave the archive"),
    "too large": (
        lambda: lying(size=9 * 1024**3, compressed_size=1),
        "unpacks to more than 8589934592 bytes",
    ),
    "bomb": (
        lambda: archive(member("x", b"\0" * 30_000_000, ZSTD)),
        "unpacks to more than 2000 times its size",
    ),
    "overlap": (lambda: archive(first=[member("x", b"x" * 90, size=99, compressed_size=99)]), "it overlaps"),
    "beyond the end": (lambda: lying(compressed_size=20_000), "it reaches beyond the archive's members"),
    "no header": (lambda: archive(without=("header.json",)), "not finished, since it holds no header.json"),
    "no header, the fix": (lambda: archive(without=("header.json",)), "recover it first: `ct logs recover`"),
    "started": (lambda: archive(head={**HEAD, "status": "started"}), "not finished, its status is `started`"),
    "header is no JSON": (lambda: archive(head=b"{"), "the log's header.json: it is not JSON"),
    "header is no log": (lambda: archive(head=[]), "header.json has no object `eval`: it is no Inspect log"),
    "header of lists": (
        lambda: archive(head=b"[]," * 2_100_000, method=STORED),
        "holds more than 2000000 objects and lists",
    ),
    "older": (
        lambda: archive(head=head("2.1")),
        "of a format below 3.0: convert it first with `ct runs convert`",
    ),
    "oldest": (lambda: archive(head=head(None)), "convert it first with `ct runs convert`"),
    "newer": (lambda: archive(head=head("4.0")), "its format 4.0 is newer than this version of ct reads"),
    "no version": (lambda: archive(head=head("x")), "its eval_version 'x' is no version number"),
    "no summaries": (
        lambda: archive(without=("summaries.json",)),
        "the log holds no summaries.json: recover",
    ),
    "no samples": (
        lambda: archive(summaries=[], without=(IN_A,)),
        "the log has no samples",
    ),
    "chunks": (
        lambda: archive(member("samples/a_epoch_1/sample.json", b"{}"), summaries=[], without=(IN_A,)),
        "the log has no samples that are read: they are split into chunks",
    ),
    "twice": (lambda: archive(summaries=[summary(A), summary(A)]), "the log has sample a twice"),
    "not held": (
        lambda: archive(summaries=[summary(A), summary(sample("b"))]),
        "summaries.json names sample b, which the log does not hold",
    ),
    "not summed up": (
        lambda: archive(member("samples/b_epoch_2.json", b"{}")),
        "summaries.json lacks sample b (epoch 2)",
    ),
    "summaries are no list": (lambda: archive(summaries={}), "summaries.json: it is not a list of objects"),
    "summaries of numbers": (lambda: archive(summaries=[1]), "summaries.json: it is not a list of objects"),
    "deep summaries": (lambda: archive(summaries=DEEP), "summaries.json: it is nested too deeply"),
    "a row without id": (lambda: archive(summaries=[{}]), "summaries.json has a row that names no sample"),
    "bad epoch": (lambda: archive(summaries=[{"id": "a", "epoch": "x"}]), "a row that names no sample"),
    "old monitor keys": (
        lambda: archive(summaries=[judged({"judge": 1.0})]),
        "sample a: monitor score 'judge'",
    ),
    "endless actions": (
        lambda: archive(summaries=[judged({"judge/1/999999999": 1.0})]),
        "sample a has verdicts on more than 200000 actions",
    ),
    "damaged summaries": (
        lambda: archive(member("summaries.json", b"[]", crc=1), without=("summaries.json",)),
        "'summaries.json': its checksum is wrong",
    ),
}


def head(version: Any) -> JsonObject:
    return {**HEAD, **header(eval_version=version)}


def judged(verdicts: JsonObject) -> JsonObject:
    return {**summary(A), "scores": {"monitor": {"value": verdicts}}}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_with_the_reason(local_site: Site, name: str) -> None:
    make, said = REFUSED[name]
    data = make()
    began = time.process_time()
    with pytest.raises(BadRequest) as refused:
        await inspect(local_site, data)
    assert said in str(refused.value)
    assert time.process_time() - began < 5


async def test_too_many_members(local_site: Site) -> None:
    entry, _ = member("x", b"")
    data = local_bytes(entry) + central_bytes(entry)
    start = len(local_bytes(entry))
    data += end_bytes(start, len(data) - start, 200_001)
    with pytest.raises(BadRequest, match="it holds 200001 members; at most 200000 are read"):
        await inspect(local_site, data)


async def test_what_was_not_uploaded(local_site: Site) -> None:
    with pytest.raises(NotFound, match="upload it first"):
        await inspect_archive(local_site, "0" * 64)


@pytest.mark.parametrize("method", [STORED, DEFLATE, ZSTD])
async def test_every_known_method(local_site: Site, method: int) -> None:
    facts = await inspect(local_site, archive(method=method))
    assert list(facts.samples) == [SampleKey("a", 1)]
    assert facts.header["eval"] == HEAD["eval"]


async def test_where_each_sample_stands(site: Site, tmp_path: Path) -> None:
    """Numbers for ids, several epochs, ids that look like members; as the archive's own reader says."""
    samples = [sample("x/y_epoch_2"), {**sample("z"), "id": 7}, sample("z", epoch=3), sample("é\n")]
    path = log(tmp_path / "x.eval", samples)
    facts = await inspect_archive(site, await upload(site, ANN, path))

    keys = [SampleKey("x/y_epoch_2", 1), SampleKey("7", 1), SampleKey("z", 3), SampleKey("é\n", 1)]
    assert list(facts.samples) == keys
    assert [facts.samples[key].position for key in keys] == [0, 1, 2, 3]
    with EvalArchive.open(path) as opened:
        for key in keys:
            expected = sample_range(opened, key, stored_as="k", e_tag="e")
            assert facts.samples[key].start == expected["compressedStart"]
            assert facts.samples[key].entry.compressed_size == expected["compressedSize"]


async def test_extra_fields_in_local_headers_are_looked_up(local_site: Site) -> None:
    """Python's own zipfile and others leave bytes between the header and the data."""

    def padded(entry: Any) -> bytes:
        plain = local_bytes(entry)
        return plain[:28] + b"\x08\x00" + plain[30:] + b"\x99\x99\x04\x00abcd"

    members = {
        IN_A: dumps(A),
        "summaries.json": dumps([summary(A)]),
        "header.json": dumps(HEAD),
    }
    data = built(*(member(name, text, ZSTD) for name, text in members.items()), local=padded)
    facts = await inspect(local_site, data)
    found = facts.samples[SampleKey("a", 1)]
    assert found.start == 30 + len(IN_A) + 8


class _Counting:
    """Blobs whose reads are counted."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self.read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.blobs, name)

    def source(self, blob: Blob) -> ByteSource:
        source, counted = self.blobs.source(blob), self.read
        read_at = source.read_at

        def counting(offset: int, length: int) -> bytes:
            counted.append(length)
            return read_at(offset, length)

        source.read_at = counting  # type: ignore[method-assign]
        return source


async def test_the_samples_are_not_read(local_site: Site, tmp_path: Path) -> None:
    async def reads(count: int) -> tuple[int, int]:
        rng = random.Random(1)
        samples = [{**sample(f"s{n}"), "noise": rng.randbytes(20_000).hex()} for n in range(count)]
        path = log(tmp_path / f"{count}.eval", samples)
        sha256 = await upload(local_site, ANN, path)
        counting = _Counting(local_site.blobs)
        await inspect_archive(replace(local_site, blobs=counting), sha256)
        return len(counting.read), sum(counting.read)

    few, many = await reads(2), await reads(60)
    assert few[0] == many[0] <= 12
    assert many[1] < 150_000


async def test_memory_does_not_grow_with_what_summaries_hold(local_site: Site) -> None:
    rows = [{**summary(sample(f"s{number}")), "input": "x" * 20_000} for number in range(400)]
    samples = [member(f"samples/s{number}_epoch_1.json", b"{}") for number in range(400)]
    data = archive(*samples, summaries=rows, without=(IN_A,), method=STORED)
    assert len(data) > 8_000_000
    sha256 = await keep(local_site, data)
    tracemalloc.start()
    facts = await inspect_archive(local_site, sha256)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(facts.samples) == 400
    assert peak < 4_500_000


async def test_damaged_bytes_are_refused_or_harmless(local_site: Site) -> None:
    """Whatever was done to a log, the answer is its facts or a refusal."""
    good = archive(member("samples/b_epoch_1.json", b"{}"), summaries=[summary(A), summary(sample("b"))])
    outcomes = set[str]()
    for seed in range(300):
        rng = random.Random(seed)
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = rng.choice([0, 0, 0, rng.randrange(len(data))])
        try:
            await inspect(local_site, bytes(data[cut:]))
            outcomes.add("facts")
        except BadRequest:
            outcomes.add("refused")
    assert outcomes == {"facts", "refused"}


async def test_integers_and_verdicts_beyond_all_floats(local_site: Site) -> None:
    rows = dumps([judged({"judge/1/0": 1.0, "judge/1/1": "huge", "judge/1/2": float("nan")})])
    facts = await inspect(local_site, archive(summaries=rows.replace(b'"huge"', b"1" * 400)))
    suspicion = facts.samples[SampleKey("a", 1)].verdicts.suspicion
    assert list(suspicion.series["judge"]) == [1, 255, 255]
    assert (suspicion.highest, suspicion.unscored) == (1.0, 2)
