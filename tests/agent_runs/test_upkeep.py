"""What is removed in the end and what never is; what a comparison of runs with their logs finds."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from control_tower.agent_runs.check import check
from control_tower.agent_runs.errors import Conflict, NotFound
from control_tower.agent_runs.register import register_run
from control_tower.agent_runs.runs import RunQuery, Runs, TrajectoryQuery
from control_tower.agent_runs.site import Site, SiteSettings
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import ALIASES, RUNS, TABLES, TRAJECTORIES, UPLOADS
from control_tower.agent_runs.store.where import Equals
from control_tower.agent_runs.upkeep import DAY, collect
from control_tower.agent_runs.uploads import Uploads
from control_tower.agent_runs.verify import verify
from control_tower.cli.app import cli
from control_tower.storage.blobs import blob_key
from tests.agent_runs.sites import (
    ANN,
    THREE,
    documents,
    lines,
    log,
    pieces,
    put_single,
    register,
    sample,
    upload,
)

pytestmark = pytest.mark.anyio

DAYS_KEPT = 30


def later(site: Site, days: float) -> Site:
    """The same site some days on."""
    return replace(site, now=lambda: site.now() + days * DAY)


async def collected(site: Site, *, dry_run: bool = False) -> list[tuple[str, str]]:
    return [(each.kind, each.id) async for each in collect(site, dry_run=dry_run)]


async def emptied(site: Site, days: float) -> None:
    """Both calls that remove an unused log."""
    await collected(later(site, days))
    await collected(later(site, days + 1))


async def rows(site: Site) -> dict[str, int]:
    counts = {table.name: await site.store.count(table) for table in TABLES}
    kept = ("secrets", "schema")
    return {name: count for name, count in counts.items() if count and name not in kept}


async def logs(site: Site) -> list[str]:
    return [blob.key async for blob in site.blobs.blobs()]


async def staged(site: Site) -> list[str]:
    return [each.upload async for each in site.blobs.uploads()]


async def test_a_run_and_its_log_are_kept_for_ever(site: Site, tmp_path: Path) -> None:
    run = await register(site, ANN, log(tmp_path / "log.eval"))
    before = await rows(site)
    for days in (1, 2, 8, 40, 400):
        assert await collected(later(site, days)) == []
    assert await rows(site) == {name: n for name, n in before.items() if name != "uploads"}
    assert [_ async for _ in verify(later(site, 400), deep=True)] == []
    await Runs(site).archive_of(run.run_id)


async def test_a_deleted_run_can_be_restored_for_thirty_days_and_is_gone_then(
    site: Site, tmp_path: Path
) -> None:
    runs = Runs(site)
    kept = await register(site, ANN, log(tmp_path / "kept.eval"))
    gone = await register(site, ANN, log(tmp_path / "gone.eval", run_name="other"))
    await runs.delete(ANN, gone.run_id)
    await emptied(site, DAYS_KEPT - 2)
    await runs.restore(ANN, gone.run_id)
    assert [_ async for _ in verify(site, deep=True)] == []
    await runs.delete(ANN, gone.run_id)
    [archive] = [await runs.archive_of(kept.run_id)]
    assert await collected(later(site, DAYS_KEPT + 1), dry_run=True) == [("run", gone.run_id)]
    assert sorted(await collected(later(site, DAYS_KEPT + 1))) == [
        ("name", f"{gone.run_id}.eval"),
        ("run", gone.run_id),
    ]
    with pytest.raises(NotFound):
        await runs.restore(ANN, gone.run_id)
    assert len(await logs(site)) == 2
    [(kind, digest)] = await collected(later(site, DAYS_KEPT + 2))
    assert kind == "log"
    assert await logs(site) == [archive.blob.key] != [blob_key(digest)]
    assert await rows(site) == {"runs": 1, "trajectories": 3, "blob_aliases": 1}
    assert await collected(later(site, 400)) == []


async def test_two_runs_of_one_log_keep_it_until_the_last_is_gone(local_site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval")
    first = await register(local_site, ANN, path)
    second = await register(local_site, ANN, path, name="second")
    for run, left in ((first, 1), (second, 0)):
        await Runs(local_site).delete(ANN, run.run_id)
        await emptied(local_site, DAYS_KEPT + 1)
        assert len(await logs(local_site)) == left
    assert await rows(local_site) == {}


async def test_an_unused_log_is_removed_by_the_second_call_a_day_later(site: Site, tmp_path: Path) -> None:
    digest = await upload(site, ANN, log(tmp_path / "log.eval"))
    assert await collected(site) == []
    assert await collected(later(site, 2)) == []
    assert await collected(later(site, 2.9)) == []
    assert await collected(later(site, 3.1), dry_run=True) == [("log", digest)]
    assert await logs(site) == [blob_key(digest)]
    assert await collected(later(site, 3.1)) == [("log", digest)]
    assert await logs(site) == []
    assert await rows(site) == {}


async def test_a_log_that_finds_its_run_after_the_first_mark_stays(local_site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval")
    await upload(local_site, ANN, path)
    assert await collected(later(local_site, 2)) == []
    run = await register(local_site, ANN, path)
    assert await collected(later(local_site, 4)) == []
    await Runs(local_site).archive_of(run.run_id)
    # The mark is forgotten too: alone again, it is given a whole day.
    await Runs(local_site).delete(ANN, run.run_id)
    await collected(later(local_site, 40))
    assert len(await logs(local_site)) == 1


async def test_an_open_upload_is_kept_for_seven_days(site: Site) -> None:
    uploads = Uploads(site)
    plan = await uploads.plan(ANN, "0" * 64, 20 * 1024**2, "x")
    await uploads.put_part(ANN, plan.upload_id, 2, pieces(bytes(4 * 1024**2), 65536), sha256=None)
    assert await collected(later(site, 6.9)) == []
    assert (await uploads.status(ANN, plan.upload_id)).parts_done == (2,)
    assert await collected(later(site, 7.1), dry_run=True) == [("upload", plan.upload_id)]
    assert await staged(site) == [plan.upload_id]
    assert await collected(later(site, 7.1)) == [("upload", plan.upload_id)]
    assert await staged(site) == []
    assert await rows(site) == {}


async def test_an_upload_that_goes_on_is_kept(local_site: Site) -> None:
    plan = await Uploads(local_site).plan(ANN, "0" * 64, 20 * 1024**2, "x")
    on_day_six = Uploads(later(local_site, 6))
    await on_day_six.put_part(ANN, plan.upload_id, 2, pieces(bytes(4 * 1024**2), 65536), sha256=None)
    assert await collected(later(local_site, 12)) == []


async def test_an_interrupted_registration_is_kept_for_seven_days(site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval")
    digest = await upload(site, ANN, path)

    async def cut_off():
        yield lines({"sha256": digest, "overrides": {}, "new": False}, documents(path)[:2]) + b"\n"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await register_run(site, ANN, cut_off())
    assert await site.store.count(RUNS) == 1
    assert await collected(later(site, 6)) == []
    [(kind, run_id), *_] = await collected(later(site, 8))
    assert kind == "run"
    assert (await register(site, ANN, path)).run_id == run_id
    assert [_ async for _ in verify(site, deep=True)] == []


async def test_a_single_upload_waits_a_day_for_its_run(local_site: Site, tmp_path: Path) -> None:
    await put_single(local_site, ANN, log(tmp_path / "log.eval"), "r1")
    assert await collected(later(local_site, 0.9)) == []
    assert await collected(later(local_site, 1.1), dry_run=True) == [("name", "r1.eval")]
    assert await collected(later(local_site, 1.1)) == [("name", "r1.eval")]
    assert [kind for kind, _ in await collected(later(local_site, 2.2))] == ["log"]
    assert await rows(local_site) == {}


async def test_parts_of_a_request_that_died_go_after_a_day(local_site: Site) -> None:
    await local_site.blobs.put_part("dead", 1, pieces(b"half"), sha256=None, size=None)
    assert await collected(later(local_site, 0.9)) == []
    assert await collected(later(local_site, 1.1), dry_run=True) == [("parts", "dead")]
    assert await staged(local_site) == ["dead"]
    assert await collected(later(local_site, 1.1)) == [("parts", "dead")]
    assert await staged(local_site) == []


async def test_trajectories_without_a_run_go(local_site: Site, tmp_path: Path) -> None:
    run = await register(local_site, ANN, log(tmp_path / "log.eval"))
    orphans = [Row(f"t{n}", {"run_id": "lost", "position": float(n)}) for n in range(3)]
    await local_site.store.insert(TRAJECTORIES, orphans)
    assert await collected(local_site, dry_run=True) == [("trajectories", "lost")]
    assert await local_site.store.count(TRAJECTORIES) == 6
    assert await collected(local_site) == [("trajectories", "lost")]
    left = await local_site.store.find(TRAJECTORIES)
    assert {row.columns["run_id"] for row in left} == {run.run_id}
    assert await local_site.store.count(RUNS) == 1


async def test_foreign_files_are_left_alone(local_site: Site) -> None:
    foreign = Path(local_site.settings.blobs) / "sha256" / "00" / "11" / "notes.eval"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    await emptied(local_site, 10)
    assert foreign.read_text() == "mine"


class Interrupting:
    """A store that lets something happen before a call of one name with one table, once."""

    def __init__(self, store: Any, name: str, table: Any, happening: Callable[[], Any]) -> None:
        self._store = store
        self._at = (name, table.name)
        self._happening: Callable[[], Any] | None = happening

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._store, name)

        async def call(table: Any, *args: Any, **kwargs: Any) -> Any:
            if (name, table.name) == self._at and self._happening:
                happening, self._happening = self._happening, None
                await happening()
            return await inner(table, *args, **kwargs)

        return call


@pytest.mark.parametrize("moment", ["replace blob_marks", "count uploads", "count runs", "delete blob_marks"])
async def test_an_upload_during_a_removal_ends_with_its_log(
    local_site: Site, tmp_path: Path, moment: str
) -> None:
    path = log(tmp_path / "log.eval")
    digest = await upload(local_site, ANN, path)
    await collected(later(local_site, 2))
    on_day_four = later(local_site, 4)
    met: list[str] = []

    async def another() -> None:
        try:
            await register(on_day_four, ANN, path)
            met.append("kept")
        except Conflict as error:
            assert "being removed; try again" in str(error)
            met.append("refused")

    name, table = moment.split()
    tables = {each.name: each for each in TABLES}
    store: Any = Interrupting(on_day_four.store, name, tables[table], another)
    removed = await collected(replace(on_day_four, store=store))
    assert met == ["kept" if moment == "replace blob_marks" else "refused"]
    assert removed == ([] if met == ["kept"] else [("log", digest)]) or moment == "count uploads"
    run = await register(on_day_four, ANN, path)
    assert [_ async for _ in verify(on_day_four, deep=True)] == []
    await Runs(on_day_four).archive_of(run.run_id)
    assert await collected(later(on_day_four, 60)) == []


async def test_a_removal_that_died_stands_in_nobodys_way(local_site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval")
    digest = await upload(local_site, ANN, path)
    await collected(later(local_site, 2))
    on_day_four = later(local_site, 4)

    async def death() -> None:
        raise ConnectionError

    store: Any = Interrupting(on_day_four.store, "count", UPLOADS, death)
    with pytest.raises(ConnectionError):
        await collected(replace(on_day_four, store=store))
    with pytest.raises(Conflict, match="try again"):
        await upload(on_day_four, ANN, path)
    await register(later(on_day_four, 0.1), ANN, path)
    assert await collected(later(on_day_four, 0.2)) == []
    assert await logs(local_site) == [blob_key(digest)]
    assert [_ async for _ in verify(local_site, deep=True)] == []


@pytest.mark.parametrize("moment", ["replace runs", "delete trajectories", "delete runs"])
async def test_a_restore_during_a_removal_is_whole_or_refused(
    local_site: Site, tmp_path: Path, moment: str
) -> None:
    path = log(tmp_path / "log.eval")
    run = await register(local_site, ANN, path)
    await Runs(local_site).delete(ANN, run.run_id)
    late = later(local_site, DAYS_KEPT + 1)
    met: list[str] = []

    async def restored() -> None:
        for attempt in (Runs(late).restore(ANN, run.run_id), register(late, ANN, path)):
            try:
                await attempt
                met.append("restored")
            except (NotFound, Conflict):
                met.append("refused")

    name, table = moment.split()
    tables = {each.name: each for each in TABLES}
    store: Any = Interrupting(late.store, name, tables[table], restored)
    await collected(replace(late, store=store))
    assert met == (["restored"] * 2 if moment == "replace runs" else ["refused"] * 2)
    assert (await register(late, ANN, path)).run_id == run.run_id
    assert [_ async for _ in verify(late, deep=True)] == []
    assert (await Runs(late).trajectories(TrajectoryQuery({"run_id": [run.run_id]}), ANN)).total_count == 3


@pytest.mark.slow
async def test_runs_come_and_go_while_removals_go_on(local_site: Site, tmp_path: Path) -> None:
    """Every moment is a day, so that whatever has a time has run out."""
    days = [0.0]
    site = replace(local_site, now=lambda: local_site.now() + days[0] * DAY)
    paths = [log(tmp_path / f"{n}.eval", THREE[:1], run_name=str(n)) for n in range(3)]
    chance = random.Random(5)
    made = 0

    async def user(seed: int) -> None:
        nonlocal made
        path = paths[seed % len(paths)]
        for _ in range(15):
            try:
                run = await register(site, ANN, path)
                made += 1
                await asyncio.sleep(chance.uniform(0, 0.02))
                await Runs(site).delete(ANN, run.run_id)
            except (Conflict, NotFound):
                await asyncio.sleep(0.01)

    async def remover() -> None:
        while not users.done():
            days[0] += chance.choice([0.3, 1, 8, 31])
            await collected(site)
            async for found in verify(site):
                assert "gone" not in found.what, found
            await asyncio.sleep(0)

    users = asyncio.gather(*(user(seed) for seed in range(6)))
    await asyncio.gather(users, remover(), remover())
    assert made > 20
    for path in paths:
        await register(site, ANN, path)
    assert [_ async for _ in verify(site, deep=True)] == []


async def damaged(site: Site, tmp_path: Path) -> str:
    run = await register(site, ANN, log(tmp_path / "log.eval"))
    await register(site, ANN, log(tmp_path / "sound.eval", run_name="sound"))
    return run.run_id


async def found_in(site: Site, run_id: str, *, deep: bool = False) -> list[str]:
    found = [each async for each in verify(site, deep=deep)]
    assert {each.run_id for each in found} <= {run_id}
    return [each.what for each in found]


async def test_a_log_that_is_gone_is_found(local_site: Site, tmp_path: Path) -> None:
    run_id = await damaged(local_site, tmp_path)
    digest = (await Runs(local_site).archive_of(run_id)).sha256
    await local_site.blobs.delete(blob_key(digest))
    assert await found_in(local_site, run_id) == ["its log is gone"]


async def test_bytes_that_changed_are_found_by_reading_them_all(local_site: Site, tmp_path: Path) -> None:
    run_id = await damaged(local_site, tmp_path)
    archive = await Runs(local_site).archive_of(run_id)
    path = Path(local_site.settings.blobs) / archive.blob.key
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    assert await found_in(local_site, run_id) == []
    [what] = await found_in(local_site, run_id, deep=True)
    assert what.startswith("its log has the SHA-256 ")
    path.write_bytes(data[:-30])
    assert "its log cannot be read" in (await found_in(local_site, run_id))[0]


async def test_a_name_that_is_gone_is_found(local_site: Site, tmp_path: Path) -> None:
    run_id = await damaged(local_site, tmp_path)
    await local_site.store.delete(ALIASES, Equals("id", f"{run_id}.eval"))
    assert await found_in(local_site, run_id) == [f"its log's name {run_id}.eval is gone"]


async def test_missing_and_surplus_trajectories_are_found(local_site: Site, tmp_path: Path) -> None:
    run_id = await damaged(local_site, tmp_path)
    store = local_site.store
    [first, second, third] = await store.find(TRAJECTORIES, Equals("run_id", run_id), documents=True)
    keys = {row.id: row.listed["eval_sample_id"] for row in (first, second, third)}
    await store.delete(TRAJECTORIES, Equals("id", first.id))
    assert await found_in(local_site, run_id) == [
        f"sample {keys[first.id]}: has no trajectory",
        "its header counts 3 trajectories, there are 2",
    ]
    await store.insert(TRAJECTORIES, [replace(second, id="twin")])
    found = await found_in(local_site, run_id)
    assert any(line.endswith(f"is another one of sample {keys[second.id]}") for line in found), found
    other = {**third.listed, "eval_sample_id": "nobody"}
    await store.replace(TRAJECTORIES, replace(third, listed=other))
    found = await found_in(local_site, run_id)
    assert any("its log has no sample nobody" in line for line in found), found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"main_task_success": False}, "main_task_success"),
        ({"eval_sample_range": {"compressedStart": 1}}, "stands elsewhere in the log: key, samplePath"),
    ],
)
async def test_documents_that_say_otherwise_are_found(
    local_site: Site, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    run_id = await damaged(local_site, tmp_path)
    found = await local_site.store.find(TRAJECTORIES, Equals("run_id", run_id), documents=True)
    [row] = [row for row in found if row.listed["eval_sample_id"] == "a"]
    await local_site.store.replace(TRAJECTORIES, replace(row, document={**row.document, **change}))
    assert await found_in(local_site, run_id) == []
    [what] = await found_in(local_site, run_id, deep=True)
    assert what.startswith(f"trajectory {row.id}: ") and said in what


async def test_a_sound_site_has_no_complaints(site: Site) -> None:
    assert await check(site) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://viewer.example", None),
        ("http://localhost:8642", None),
        ("http://viewer.example", "tokens travel unprotected"),
        ("viewer.example", "is no address of a viewer"),
        ("ftp://viewer.example", "is no address of a viewer"),
    ],
)
async def test_a_public_address_must_be_safe(local_site: Site, url: str, said: str | None) -> None:
    site = replace(local_site, settings=replace(local_site.settings, public_url=url))
    assert [said in line for line in await check(site) if said] == [True] * (said is not None)


async def test_a_store_that_others_can_read_is_found(local_site: Site) -> None:
    file = local_site.settings.data / "runs.sqlite"
    file.chmod(0o644)
    [line] = await check(local_site)
    assert line.endswith("holds secrets that other users of this machine can read; chmod 600 it")


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    from control_tower.agent_runs.site import open_site

    data = tmp_path / "viewer"

    async def prepared() -> str:
        settings = SiteSettings.from_environment("private", str(data))
        async with open_site(settings) as site:
            await site.blobs.put_part("dead", 1, pieces(b"half"), sha256=None, size=None)
            run = await register(site, ANN, log(tmp_path / "log.eval", [sample("a", main=1.0)]))
            old = replace(site, now=lambda: site.now() - 40 * DAY)
            gone = await register(old, ANN, log(tmp_path / "gone.eval", run_name="gone"))
            await Runs(old).delete(ANN, gone.run_id)
            page = await Runs(site).list(RunQuery(), ANN)
            assert [item["run_id"] for item in page.items] == [run.run_id]
            return run.run_id

    def ct(*words: str) -> tuple[int, Any]:
        done = CliRunner().invoke(cli, ["viewer", *words, "--data", str(data), "--format", "json"])
        return done.exit_code, json.loads(done.stdout)

    run_id = asyncio.run(prepared())
    assert ct("check") == (0, [])
    assert ct("verify", "--deep") == (0, [])
    code, would = ct("gc", "--dry-run")
    code_again, removed = ct("gc")
    assert (code, code_again) == (0, 0)
    assert [each["kind"] for each in would] == ["run"]
    assert [each["kind"] for each in removed] == ["run", "name"]
    assert ct("gc") == (0, [])
    for path in (data / "blobs" / "sha256").rglob("*.eval"):
        path.unlink()
    assert ct("verify") == (1, [{"run_id": run_id, "what": "its log is gone"}])
    (data / "runs.sqlite").chmod(0o644)
    code, [finding] = ct("check")
    assert code == 1 and "chmod 600" in finding["finding"]
