"""What a directory and S3 must both do with blobs."""

import asyncio
import hashlib
import json
import random
import sys
from pathlib import Path

import pytest

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.storage.blobs import (
    PIECE,
    DigestMismatch,
    OtherPart,
    PartMissing,
    Staged,
    blob_key,
)
from control_tower.storage.opening import open_blobs
from tests.storage.opened import Opened, keep, send, sha256, stream, whole

pytestmark = pytest.mark.anyio

MiB = 1024**2


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([3], id="one small part"),
        pytest.param([6 * MiB], id="one large part"),
        pytest.param([5 * MiB, 5 * MiB, 1], id="parts as S3 wants them"),
        pytest.param([1, 2, 6 * MiB, 3 * MiB, 3 * MiB, 7], id="parts too small for S3"),
    ],
)
async def test_parts_become_one_object_under_its_digest(store: Opened, sizes: list[int]) -> None:
    parts = [noise(size, seed) for seed, size in enumerate(sizes)]
    data = b"".join(parts)
    for number in sorted(range(1, len(parts) + 1), reverse=True):
        part = parts[number - 1]
        await store.blobs.put_part("u1", number, stream(part), sha256=sha256(part), size=len(part))
    assert {number: part.size for number, part in (await store.blobs.parts("u1")).items()} == dict(
        enumerate(sizes, 1)
    )
    made = await store.blobs.assemble("u1", sha256=sha256(data), size=len(data))
    assert (made.sha256, made.md5, made.existing) == (sha256(data), hashlib.md5(data).hexdigest(), False)
    digest = sha256(data)
    assert made.blob.key == blob_key(digest) == f"sha256/{digest[:2]}/{digest[2:4]}/{digest}.eval"
    assert made.blob.size == len(data)
    assert await store.blobs.head(made.blob.key) == made.blob
    assert await whole(store.blobs, made.blob.key) == data
    await store.blobs.abandon("u1")
    assert store.everything() == [made.blob.key]


async def test_any_range_is_read_in_pieces_of_a_mebibyte(store: Opened) -> None:
    data = noise(2 * MiB + 12345)
    made = await keep(store.blobs, data)
    edges = [0, 1, MiB, MiB + 1, len(data) - 1, len(data)]
    for start in edges:
        for end in [edge for edge in edges if edge >= start]:
            pieces = [
                piece async for piece in store.blobs.read(made.blob.key, start, end - start, pinned=made.blob)
            ]
            assert b"".join(pieces) == data[start:end]
            assert all(len(piece) <= PIECE for piece in pieces)
        assert b"".join([piece async for piece in store.blobs.read(made.blob.key, start)]) == data[start:]
    source = store.blobs.source(made.blob)
    assert source.size == len(data)
    assert source.read_at(MiB - 3, 7) == data[MiB - 3 : MiB + 4]
    source.close()


@pytest.mark.parametrize(("start", "length"), [(0, 11), (11, None), (11, 0), (10, 1), (-1, 2), (5, -1)])
async def test_a_range_outside_is_an_error(store: Opened, start: int, length: int | None) -> None:
    made = await keep(store.blobs, b"0123456789")
    with pytest.raises(OperationError, match="are not in it"):
        _ = [piece async for piece in store.blobs.read(made.blob.key, start, length)]


async def test_an_object_that_is_not_there(store: Opened) -> None:
    key = blob_key("0" * 64)
    assert await store.blobs.head(key) is None
    with pytest.raises(StateError, match=f"{key}: there is no such object"):
        await whole(store.blobs, key)
    await store.blobs.delete(key)


async def test_a_replaced_object_is_never_read_as_the_pinned_one(store: Opened) -> None:
    made = await keep(store.blobs, b"0123456789")
    store.overwrite(made.blob.key, b"abcdefghij")
    with pytest.raises(StateError, match="no longer the object"):
        _ = [piece async for piece in store.blobs.read(made.blob.key, pinned=made.blob)]
    if store.kind == "s3 with versions":
        # The version that was looked at is still there.
        assert store.blobs.source(made.blob).read_at(0, 1) == b"0"
    else:
        with pytest.raises((StateError, OperationError), match=r"no longer the object|changed while"):
            store.blobs.source(made.blob).read_at(0, 1)


async def test_a_removed_object_is_gone(store: Opened) -> None:
    made = await keep(store.blobs, b"data")
    await store.blobs.delete(made.blob.key)
    await store.blobs.delete(made.blob.key)
    assert await store.blobs.head(made.blob.key) is None
    assert [blob async for blob in store.blobs.blobs()] == []


@pytest.mark.parametrize(
    ("announced", "size"),
    [
        pytest.param(sha256(b"other"), 4, id="another digest"),
        pytest.param(sha256(b"data"), 5, id="too few bytes"),
        pytest.param(None, 3, id="too many bytes"),
    ],
)
async def test_a_part_that_is_not_as_announced_is_not_kept(
    store: Opened, announced: str | None, size: int
) -> None:
    with pytest.raises(DigestMismatch):
        await store.blobs.put_part("u1", 1, stream(b"data"), sha256=announced, size=size)
    assert await store.blobs.parts("u1") == {}
    assert store.everything() == []


async def test_an_endless_part_is_cut_off_soon(store: Opened) -> None:
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 65536
            yield bytes(65536)

    with pytest.raises(DigestMismatch, match="more than the 100000 bytes"):
        await store.blobs.put_part("u1", 1, endless(), sha256=None, size=100_000)
    assert sent <= 2 * 65536


async def test_an_equal_part_changes_nothing_and_another_is_refused(store: Opened) -> None:
    await send(store.blobs, "u1", b"data")
    await send(store.blobs, "u1", b"data")
    with pytest.raises(OtherPart, match="part 1: another one"):
        await send(store.blobs, "u1", b"atad")
    assert (await store.blobs.assemble("u1")).sha256 == sha256(b"data")


async def test_of_other_parts_at_once_one_is_kept(store: Opened) -> None:
    bodies = [bytes([number]) * 1000 for number in range(8)]
    results = await asyncio.gather(
        *(send(store.blobs, "u1", body) for body in bodies), return_exceptions=True
    )
    kept = [body for body, result in zip(bodies, results, strict=True) if result is None]
    assert len(kept) == 1
    assert all(isinstance(result, OtherPart) for result in results if result is not None)
    assert (await store.blobs.assemble("u1")).sha256 == sha256(kept[0])


async def test_a_cancelled_part_leaves_nothing(store: Opened) -> None:
    arrived = asyncio.Event()

    async def stalled():
        yield bytes(2 * MiB)
        arrived.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(store.blobs.put_part("u1", 1, stalled(), sha256=None, size=3 * MiB))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.blobs.parts("u1") == {}
    assert store.everything() == []


async def test_a_missing_part_is_named(store: Opened) -> None:
    with pytest.raises(PartMissing, match="lacks part 1"):
        await store.blobs.assemble("u1")
    await store.blobs.put_part("u1", 1, stream(b"a"), sha256=None, size=None)
    await store.blobs.put_part("u1", 3, stream(b"c"), sha256=None, size=None)
    with pytest.raises(PartMissing, match="lacks part 2"):
        await store.blobs.assemble("u1")
    await store.blobs.put_part("u1", 2, stream(b"b"), sha256=None, size=None)
    with pytest.raises(PartMissing, match="3 of 4 bytes"):
        await store.blobs.assemble("u1", sha256=sha256(b"abcd"), size=4)
    assert (await store.blobs.assemble("u1")).sha256 == sha256(b"abc")


@pytest.mark.parametrize(("announced", "size"), [(sha256(b"other"), None), (sha256(b"data"), 3), (None, 3)])
async def test_a_whole_that_is_not_as_announced_is_dropped_with_its_parts(
    store: Opened, announced: str | None, size: int | None
) -> None:
    await send(store.blobs, "u1", b"da", b"ta")
    with pytest.raises(DigestMismatch):
        await store.blobs.assemble("u1", sha256=announced, size=size)
    assert store.everything() == []


async def test_bytes_that_are_there_already_are_not_written_again(store: Opened) -> None:
    data = noise(6 * MiB)
    await send(store.blobs, "u1", data)
    first = await store.blobs.assemble("u1")
    again = await store.blobs.assemble("u1")
    await send(store.blobs, "u2", data[:10], data[10:])
    other = await store.blobs.assemble("u2")
    assert [first.existing, again.existing, other.existing] == [False, True, True]
    assert first.blob == again.blob == other.blob
    assert [blob.key async for blob in store.blobs.blobs()] == [first.blob.key]


async def test_two_processes_at_once_commit_once(store: Opened) -> None:
    data = noise(11 * MiB)
    await send(store.blobs, "u1", data[: 6 * MiB], data[6 * MiB :])
    await send(store.blobs, "u2", data[: 5 * MiB], data[5 * MiB :])
    program = (
        "import asyncio, json, sys\n"
        "from control_tower.storage.opening import open_blobs\n"
        "async def main(address, upload):\n"
        "    blobs = await open_blobs(address)\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    made = await blobs.assemble(upload)\n"
        "    print(json.dumps([made.sha256, made.existing]))\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", program, store.address, upload),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for upload in ("u1", "u1", "u2")
    ]
    for child in children:
        assert child.stdout and await child.stdout.readline() == b"ready\n"
    answers = [json.loads((await child.communicate(b"go\n"))[0]) for child in children]
    assert sorted(answers) == [[sha256(data), False], [sha256(data), True], [sha256(data), True]]
    assert await whole(store.blobs, blob_key(sha256(data))) == data


async def test_an_upload_that_is_taken_away_while_it_is_assembled_lacks_parts(store: Opened) -> None:
    await send(store.blobs, "u1", noise(6 * MiB, 1), noise(6 * MiB, 2))
    results = await asyncio.gather(
        *(store.blobs.assemble("u1") for _ in range(3)), store.blobs.abandon("u1"), return_exceptions=True
    )
    for result in results[:3]:
        assert not isinstance(result, BaseException) or isinstance(result, PartMissing), result
    assert await store.blobs.parts("u1") == {}
    assert not any(key.startswith("staged/") for key in store.everything())


async def test_uploads_are_listed_until_they_are_abandoned(store: Opened) -> None:
    await send(store.blobs, "u1", b"one", b"more")
    await send(store.blobs, "u2", b"two")
    listed = {staged.upload: staged async for staged in store.blobs.uploads()}
    now = next(iter(listed.values())).changed
    assert {name: staged.size for name, staged in listed.items()} == {"u1": 7, "u2": 3}
    assert all(abs(staged.changed - now) < 60 for staged in listed.values())
    await store.blobs.abandon("u1")
    await store.blobs.abandon("u1")
    assert [staged.upload async for staged in store.blobs.uploads()] == ["u2"]


async def test_all_objects_are_listed(store: Opened) -> None:
    made = [await keep(store.blobs, noise(100, seed), upload=f"u{seed}") for seed in range(5)]
    listed = [blob async for blob in store.blobs.blobs()]
    assert {(blob.key, blob.size, blob.e_tag) for blob in listed} == {
        (one.blob.key, 100, one.blob.e_tag) for one in made
    }


async def test_names_that_lead_elsewhere_are_refused(store: Opened) -> None:
    for name in ("", "../x", "a/b", "A", "x" * 65):
        with pytest.raises(ValidationError, match="is no id of an upload"):
            await store.blobs.put_part(name, 1, stream(b"x"), sha256=None, size=None)
        with pytest.raises(ValidationError, match="is no id of an upload"):
            await store.blobs.abandon(name)
    assert store.everything() == []


async def test_a_sound_store_has_no_complaints_and_keeps_no_probe(store: Opened) -> None:
    assert await store.blobs.check() == []
    assert store.everything() == []
    assert store.blobs.bucket == {"directory": "local", "s3": "plain"}.get(store.kind, "versions")
    free = await store.blobs.free()
    assert free is None if store.server else free and free > 0


async def test_what_dead_assemblies_left_is_cleaned(store: Opened) -> None:
    await send(store.blobs, "u1", b"data")
    if store.server:
        bucket, prefix = store.address.removeprefix("s3://").split("/", 1)
        store.server.client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/{blob_key('0' * 64)}")
    else:
        (Path(store.address) / "staged" / "u1" / ".left").write_bytes(b"half")
    [staged] = [staged async for staged in store.blobs.uploads()]
    assert isinstance(staged, Staged)
    assert await store.blobs.clean(staged.changed - 3600) == 0
    assert await store.blobs.clean(staged.changed + 3600) == 1
    assert await store.blobs.clean(staged.changed + 3600) == 0
    assert (await store.blobs.assemble("u1")).sha256 == sha256(b"data")


@pytest.mark.parametrize("address", ["s3://", "s3:///x"])
async def test_addresses_of_no_bucket(address: str) -> None:
    with pytest.raises(ValidationError, match="names no bucket"):
        await open_blobs(address)
