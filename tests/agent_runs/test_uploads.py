"""How logs arrive: in parts that may be sent again, or in one signed request; who may rely on whose bytes."""

import asyncio
import hashlib
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden, NotFound, Stale
from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.single_uploads import HOLDS_FOR, SingleUploads
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import BLOB_MARKS, TABLES
from control_tower.agent_runs.uploads import PART_SIZE, StoredLog, UploadLimits, Uploads
from control_tower.storage.blobs import DigestMismatch, OutOfSpace, blob_key
from tests.agent_runs.sites import ANN, BOB, EVE, log, pieces, register

pytestmark = pytest.mark.anyio

TWO_PARTS = random.Random(1).randbytes(PART_SIZE + 5)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def begin(uploads: Uploads, who: Actor, data: bytes) -> str:
    plan = await uploads.plan(who, sha256(data), len(data), "my.eval")
    assert not plan.exists
    return plan.upload_id


async def put(uploads: Uploads, who: Actor, id: str, number: int, part: bytes) -> None:
    await uploads.put_part(who, id, number, pieces(part, 100_000), sha256=sha256(part), size=len(part))


async def sent(site: Site, who: Actor, data: bytes) -> StoredLog:
    """A log that was uploaded."""
    uploads = Uploads(site)
    id = await begin(uploads, who, data)
    for number, start in enumerate(range(0, len(data), PART_SIZE), 1):
        await put(uploads, who, id, number, data[start : start + PART_SIZE])
    return await uploads.complete(who, id)


async def content(site: Site, digest: str) -> bytes:
    return b"".join([piece async for piece in site.blobs.read(blob_key(digest))])


async def staged(site: Site) -> list[str]:
    return [each.upload async for each in site.blobs.uploads()]


async def test_parts_in_any_order_become_the_log(site: Site) -> None:
    uploads = Uploads(site)
    id = await begin(uploads, ANN, TWO_PARTS)
    await put(uploads, ANN, id, 2, TWO_PARTS[PART_SIZE:])
    assert (await uploads.status(ANN, id)).parts_done == (2,)
    await put(uploads, ANN, id, 1, TWO_PARTS[:PART_SIZE])
    made = await uploads.complete(ANN, id)
    expected = StoredLog(sha256(TWO_PARTS), hashlib.md5(TWO_PARTS).hexdigest(), PART_SIZE + 5, existing=False)
    assert made == expected
    assert await content(site, made.sha256) == TWO_PARTS
    assert await staged(site) == []
    assert await uploads.find(ANN, made.sha256) == replace(expected, existing=True)


async def test_an_upload_goes_on_where_it_was_interrupted(site: Site) -> None:
    id = await begin(Uploads(site), ANN, TWO_PARTS)
    await put(Uploads(site), ANN, id, 1, TWO_PARTS[:PART_SIZE])
    again = await Uploads(site).plan(ANN, sha256(TWO_PARTS), len(TWO_PARTS), "renamed.eval")
    assert (again.upload_id, again.exists, again.parts_done, again.part_size) == (id, False, (1,), PART_SIZE)


async def test_what_was_sent_need_not_be_sent_again(site: Site) -> None:
    made = await sent(site, ANN, b"data")
    plan = await Uploads(site).plan(ANN, made.sha256, 4, "my.eval")
    assert (plan.exists, plan.parts_done) == (True, ())
    # Of one who still sends; it is not kept.
    await put(Uploads(site), ANN, plan.upload_id, 1, b"atad")
    assert await staged(site) == []
    assert await content(site, made.sha256) == b"data"


async def test_a_complete_log_that_is_lost_is_sent_again(site: Site) -> None:
    made = await sent(site, ANN, b"data")
    await site.blobs.delete(blob_key(made.sha256))
    assert await Uploads(site).find(ANN, made.sha256) is None
    assert await sent(site, ANN, b"data") == made


async def test_completing_again_and_by_several_at_once_gives_one_answer_and_one_log(site: Site) -> None:
    uploads = Uploads(site)
    id = await begin(uploads, ANN, TWO_PARTS)
    await put(uploads, ANN, id, 1, TWO_PARTS[:PART_SIZE])
    await put(uploads, ANN, id, 2, TWO_PARTS[PART_SIZE:])
    answers = await asyncio.gather(*(Uploads(site).complete(ANN, id) for _ in range(3)))
    again = await uploads.complete(ANN, id)
    assert {replace(answer, existing=False) for answer in (*answers, again)} == {
        StoredLog(sha256(TWO_PARTS), hashlib.md5(TWO_PARTS).hexdigest(), len(TWO_PARTS))
    }
    assert [blob.size async for blob in site.blobs.blobs()] == [len(TWO_PARTS)]
    assert await staged(site) == []


async def test_one_user_may_send_one_log_many_times_at_once(site: Site) -> None:
    made = await asyncio.gather(*(sent_if_needed(site, TWO_PARTS) for _ in range(4)))
    assert {each.sha256 for each in made} == {sha256(TWO_PARTS)}
    assert await content(site, sha256(TWO_PARTS)) == TWO_PARTS


async def sent_if_needed(site: Site, data: bytes) -> StoredLog:
    uploads = Uploads(site)
    plan = await uploads.plan(ANN, sha256(data), len(data), "my.eval")
    for number, start in enumerate(range(0, len(data), PART_SIZE), 1):
        if not plan.exists and number not in plan.parts_done:
            await put(uploads, ANN, plan.upload_id, number, data[start : start + PART_SIZE])
    return await uploads.complete(ANN, plan.upload_id)


async def test_two_users_with_one_log_both_succeed_and_one_commits(site: Site) -> None:
    made = await asyncio.gather(sent(site, ANN, b"data"), sent(site, BOB, b"data"))
    assert sorted(each.existing for each in made) == [False, True]
    assert len([blob async for blob in site.blobs.blobs()]) == 1


async def test_an_upload_belongs_to_its_user(local_site: Site) -> None:
    uploads = Uploads(local_site)
    id = await begin(uploads, ANN, b"data")
    await put(uploads, ANN, id, 1, b"data")
    for refused in (
        uploads.status(BOB, id),
        uploads.complete(BOB, id),
        uploads.abandon(BOB, id),
        put(uploads, BOB, id, 1, b"data"),
        uploads.status(ANN, "0" * 32),
    ):
        with pytest.raises(NotFound):
            await refused
    assert (await uploads.plan(BOB, sha256(b"data"), 4, "x")).upload_id != id
    with pytest.raises(Forbidden, match="runs:write"):
        await uploads.plan(EVE, sha256(b"data"), 4, "x")


async def test_nobody_learns_of_bytes_they_cannot_read(site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval")
    data = path.read_bytes()
    digest, uploads = sha256(data), Uploads(site)
    await sent(site, ANN, data)
    assert await uploads.find(BOB, digest) is None
    id = await begin(uploads, BOB, data)
    with pytest.raises(Conflict, match="lacks part 1"):
        await uploads.complete(BOB, id)
    await uploads.abandon(BOB, id)
    run = await register(site, ANN, path)
    found = await uploads.find(BOB, digest)
    assert found == StoredLog(digest, hashlib.md5(data).hexdigest(), len(data), existing=True)
    assert (await uploads.plan(BOB, digest, len(data), "x")).exists
    await uploads.abandon(BOB, (await uploads.plan(BOB, digest, len(data), "x")).upload_id)
    await Runs(site).delete(ANN, run.run_id)
    assert not (await uploads.plan(BOB, digest, len(data), "x")).exists
    assert (await uploads.plan(ANN, digest, len(data), "x")).exists


async def test_parts_that_do_not_belong_are_refused(local_site: Site) -> None:
    uploads = Uploads(local_site)
    id = await begin(uploads, ANN, TWO_PARTS)
    for number in (0, -1, 3, 10_001):
        with pytest.raises(BadRequest, match="has parts 1 to 2"):
            await put(uploads, ANN, id, number, b"x")
    with pytest.raises(BadRequest, match="must have 5 bytes, not 4"):
        await put(uploads, ANN, id, 2, b"four")
    with pytest.raises(DigestMismatch):
        await uploads.put_part(ANN, id, 2, pieces(b"four"), sha256=None)
    with pytest.raises(DigestMismatch):
        await uploads.put_part(ANN, id, 2, pieces(b"fiver"), sha256=sha256(b"other"))
    assert (await uploads.status(ANN, id)).parts_done == ()
    await put(uploads, ANN, id, 2, b"first")
    await put(uploads, ANN, id, 2, b"first")
    with pytest.raises(Conflict, match="another one"):
        await put(uploads, ANN, id, 2, b"other")
    with pytest.raises(Conflict, match="lacks part 1"):
        await uploads.complete(ANN, id)


async def test_a_whole_that_is_not_what_was_announced_begins_anew(local_site: Site) -> None:
    uploads = Uploads(local_site)
    id = (await uploads.plan(ANN, sha256(b"right"), 5, "x")).upload_id
    await put(uploads, ANN, id, 1, b"wrong")
    with pytest.raises(DigestMismatch):
        await uploads.complete(ANN, id)
    assert (await uploads.status(ANN, id)).parts_done == ()
    await put(uploads, ANN, id, 1, b"right")
    assert (await uploads.complete(ANN, id)).sha256 == sha256(b"right")


@pytest.mark.parametrize(
    ("digest", "size"),
    [
        ("0" * 63, 4),
        ("G" * 64, 4),
        ("A" * 64, 4),
        ("0" * 64, 0),
        ("0" * 64, -1),
        ("0" * 64, 20 * 1024**3 + 1),
    ],
)
async def test_logs_that_cannot_be_are_refused(local_site: Site, digest: str, size: int) -> None:
    with pytest.raises(BadRequest):
        await Uploads(local_site).plan(ANN, digest, size, "x")


async def test_another_size_of_the_same_digest_is_refused(local_site: Site) -> None:
    await begin(Uploads(local_site), ANN, b"data")
    with pytest.raises(BadRequest, match="is of 4 bytes"):
        await Uploads(local_site).plan(ANN, sha256(b"data"), 5, "x")


async def test_a_user_has_few_unfinished_uploads(local_site: Site) -> None:
    uploads = Uploads(local_site)
    for number in range(8):
        await begin(uploads, ANN, str(number).encode())
    with pytest.raises(Conflict, match="8 unfinished uploads"):
        await begin(uploads, ANN, b"more")
    await begin(uploads, BOB, b"more")
    await sent(local_site, ANN, b"0")
    await begin(uploads, ANN, b"more")


async def test_a_disk_with_little_room_takes_no_uploads(local_site: Site) -> None:
    free = await local_site.blobs.free()
    assert free is not None
    limits = UploadLimits(kept_free=free - 10**9)
    with pytest.raises(OutOfSpace, match="no room"):
        await Uploads(local_site, limits).plan(ANN, sha256(b"x"), 6 * 10**8, "x")
    with pytest.raises(OutOfSpace, match="no room"):
        await SingleUploads(local_site, limits).plan(ANN, "x.eval", 6 * 10**8)
    await Uploads(local_site, limits).plan(ANN, sha256(b"x"), 1, "x")


async def test_of_a_file_name_only_the_end_is_kept(local_site: Site) -> None:
    for number, name in enumerate(("/home/ann/secret/my.eval", r"C:\Users\ann\secret\my.eval")):
        await Uploads(local_site).plan(ANN, sha256(bytes([number])), 1, name)
    rows = [row for table in TABLES for row in await local_site.store.find(table, documents=True)]
    assert sum("my.eval" in str(row) for row in rows) == 2
    assert not any("secret" in str(row) for row in rows)


async def test_nothing_relies_on_a_log_that_is_being_removed(local_site: Site) -> None:
    made = await sent(local_site, ANN, b"data")
    mark = Row(made.sha256, {"marked": "2026-01-01T00:00:00.000000Z"}, {"removing": local_site.now()})
    await local_site.store.insert(BLOB_MARKS, [mark])
    with pytest.raises(Conflict, match="is being removed; try again"):
        await Uploads(local_site).plan(BOB, made.sha256, 4, "x")


async def planned(site: Site, who: Actor, name: str, size: int) -> Mapping[str, str]:
    plan = await SingleUploads(site).plan(who, name, size)
    address = urlsplit(plan.path)
    assert address.path == f"/blobs/in/{name}"
    assert (plan.bucket, plan.key) == (site.blobs.bucket, name)
    return dict(parse_qsl(address.query))


async def test_a_log_arrives_in_one_request(site: Site) -> None:
    singles = SingleUploads(site)
    query = await planned(site, ANN, "r1.eval", len(TWO_PARTS))
    with pytest.raises(NotFound):
        await singles.head(ANN, "r1.eval")
    made = await singles.put("r1.eval", query, pieces(TWO_PARTS, 70_001), len(TWO_PARTS))
    assert made == StoredLog(sha256(TWO_PARTS), hashlib.md5(TWO_PARTS).hexdigest(), len(TWO_PARTS))
    assert await content(site, made.sha256) == TWO_PARTS
    assert await singles.head(ANN, "r1.eval") == replace(made, existing=True)
    assert await staged(site) == []
    with pytest.raises(Conflict, match=r"r1\.eval: there is a log of this name"):
        await singles.plan(ANN, "r1.eval", 5)


async def test_one_name_is_of_one_log(local_site: Site) -> None:
    singles = SingleUploads(local_site)
    query = await planned(local_site, ANN, "r1.eval", 4)
    theirs = await planned(local_site, BOB, "r1.eval", 4)
    first = await singles.put("r1.eval", query, pieces(b"data"), None)
    assert await singles.put("r1.eval", query, pieces(b"data"), 4) == replace(first, existing=True)
    for again in (query, theirs):
        with pytest.raises(Stale, match="another log of this name"):
            await singles.put("r1.eval", again, pieces(b"atad"), 4)
    assert (await singles.head(ANN, "r1.eval")).sha256 == sha256(b"data")


async def test_others_see_a_single_log_when_there_is_a_run_of_it(local_site: Site, tmp_path: Path) -> None:
    singles = SingleUploads(local_site)
    run = await register(local_site, ANN, log(tmp_path / "log.eval"))
    assert (await singles.head(BOB, f"{run.run_id}.eval")).size == (tmp_path / "log.eval").stat().st_size
    await singles.put("r1.eval", await planned(local_site, ANN, "r1.eval", 4), pieces(b"data"), 4)
    with pytest.raises(NotFound):
        await singles.head(BOB, "r1.eval")
    with pytest.raises(Forbidden):
        await singles.head(EVE, "r1.eval")


@pytest.mark.parametrize("data", [b"dat", b"data!", b""], ids=["shorter", "longer", "none"])
@pytest.mark.parametrize("said", [True, False], ids=["with its length", "without a length"])
async def test_another_size_than_planned_leaves_nothing(local_site: Site, data: bytes, said: bool) -> None:
    query = await planned(local_site, ANN, "r1.eval", 4)
    with pytest.raises(BadRequest, match="4 bytes were planned"):
        await SingleUploads(local_site).put("r1.eval", query, pieces(data), len(data) if said else None)
    assert await staged(local_site) == []
    assert [blob async for blob in local_site.blobs.blobs()] == []


@pytest.mark.parametrize(
    "change",
    [
        {"size": "5"},
        {"exp": "99999999999"},
        {"user": "bob"},
        {"sig": "A" * 43},
        {"sig": ""},
        {"size": "-4"},
        {"size": "4.0"},
        {"exp": "soon"},
        {"size": "\u0664"},
    ],
)
async def test_an_address_that_was_changed_takes_nothing(local_site: Site, change: dict[str, str]) -> None:
    query = await planned(local_site, ANN, "r1.eval", 4)
    with pytest.raises(Forbidden, match="plan the upload again"):
        await SingleUploads(local_site).put("r1.eval", {**query, **change}, pieces(b"data"), 4)


async def test_an_address_is_for_one_name_for_an_hour(local_site: Site) -> None:
    query = await planned(local_site, ANN, "r1.eval", 4)
    singles = SingleUploads(local_site)
    with pytest.raises(Forbidden):
        await singles.put("r2.eval", query, pieces(b"data"), 4)
    with pytest.raises(Forbidden):
        await singles.put("r1.eval", {}, pieces(b"data"), 4)
    late = replace(local_site, now=lambda: local_site.now() + HOLDS_FOR + 1)
    with pytest.raises(Forbidden):
        await SingleUploads(late).put("r1.eval", query, pieces(b"data"), 4)
    await singles.put("r1.eval", query, pieces(b"data"), 4)


@pytest.mark.parametrize(
    "name", ["", "x", ".eval", "../x.eval", "a/b.eval", "a b.eval", "x.eval\n", "x" * 200 + ".eval"]
)
async def test_names_that_are_no_logs_are_refused(local_site: Site, name: str) -> None:
    with pytest.raises(BadRequest, match="filename"):
        await SingleUploads(local_site).plan(ANN, name, 4)
    with pytest.raises(Forbidden):
        await SingleUploads(local_site).plan(EVE, "x.eval", 4)
