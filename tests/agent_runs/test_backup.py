"""`ct viewer backup`, `restore` and `migrate`: nothing is lost, on both kinds of viewers and between them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from control_tower.agent_runs.accounts.users import add_user, find_user
from control_tower.agent_runs.backup import back_up
from control_tower.agent_runs.registering import is_whole
from control_tower.agent_runs.site import Site, SiteSettings, open_site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import RUNS, SCHEMA, TABLES
from control_tower.cli.app import main
from tests.agent_runs.sites import ANN, log, register, seen
from tests.support.mongod import Mongod
from tests.support.s3_server import S3Server

Choose = Callable[[str], None]


def ct(*words: object) -> int:
    """Runs `ct viewer` and gives its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["viewer", *map(str, words)])
    return int(str(ended.value.code))


@pytest.fixture
def choose(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Makes a new, empty viewer of a kind the one that commands are about."""

    def chosen(kind: str) -> None:
        place = uuid4().hex
        monkeypatch.setenv("CONTROL_TOWER_VIEWER_DATA", str(tmp_path / place))
        monkeypatch.delenv("MONGOURI", raising=False)
        monkeypatch.delenv("CONTROL_TOWER_VIEWER_BLOBS", raising=False)
        if kind == "shared":
            database: Mongod = request.getfixturevalue("mongod")
            logs: S3Server = request.getfixturevalue("s3_server")
            for name, value in logs.environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("MONGOURI", database.uri(place))
            monkeypatch.setenv("CONTROL_TOWER_VIEWER_BLOBS", f"s3://plain/{place}")

    return chosen


async def fill(folder: Path) -> None:
    """A run, a user, and rows as odd as they come."""
    async with open_site(SiteSettings.from_environment("private")) as site:
        await register(site, ANN, log(folder / "first.eval"))
        await add_user(site.store, site.now(), "ann", "admin", "correct horse battery staple")
        assert await site.store.insert(RUNS, [odd(number) for number in range(250)]) == set()


def odd(number: int) -> Row:
    """A deleted run, so that no list of runs has to make sense of it."""
    columns = {"deleted": f"{number:04}", "tags": ["b", "a", "ä.$"], "metrics": {"z.$": 1 / 3, "a": -1e300}}
    return Row(
        f"{number:032x}",
        columns,
        {"big": 2**70, "a": 2},
        {"half": "\ud800", "$": {"": []}},
        rev=number + 1,
    )


async def held() -> tuple[object, ...]:
    """What a viewer gives back."""
    async with open_site(SiteSettings.from_environment("private")) as site:
        rows = {table.name: await site.store.find(table, documents=True) for table in TABLES}
        blobs = {
            blob.key: [piece async for piece in site.blobs.read(blob.key)]
            async for blob in site.blobs.blobs()
        }
        return rows, blobs, site.key, await seen(site), await find_user(site.store, "ann")


def rows_of(backup: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((backup / "rows").iterdir())}


def test_a_viewer_of_either_kind_is_restored_as_the_other_kind(
    choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choose("local")
    asyncio.run(fill(tmp_path))
    first = asyncio.run(held())
    assert ct("backup", tmp_path / "one") == 0
    assert "251 runs, 3 trajectories, 1 users and 1 logs" in capsys.readouterr().err

    choose("shared")
    assert ct("restore", tmp_path / "one") == 0
    assert asyncio.run(held()) == first
    assert ct("backup", tmp_path / "two", "--blobs") == 0

    choose("local")
    assert ct("restore", tmp_path / "two") == 0
    assert asyncio.run(held()) == first
    assert rows_of(tmp_path / "one") == rows_of(tmp_path / "two")


def test_logs_in_a_bucket_are_only_named_and_must_be_there_afterwards(
    choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose("shared")
    asyncio.run(fill(tmp_path))
    first = asyncio.run(held())
    bucket = SiteSettings.from_environment("private").blobs
    assert ct("backup", tmp_path / "one") == 0
    assert not (tmp_path / "one" / "blobs").exists()

    choose("shared")
    monkeypatch.setenv("CONTROL_TOWER_VIEWER_BLOBS", bucket)
    assert ct("restore", tmp_path / "one") == 0
    assert asyncio.run(held()) == first

    choose("local")
    assert ct("restore", tmp_path / "one") == 1
    assert "all rows are restored, but 1 of 1 logs are not where logs are kept" in capsys.readouterr().err
    assert asyncio.run(held())[0] == first[0]


def test_a_store_that_has_something_is_not_restored_into(
    choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choose("local")
    asyncio.run(fill(tmp_path))
    first = asyncio.run(held())
    assert ct("backup", tmp_path / "one") == 0

    assert ct("restore", tmp_path / "one") == 1

    assert "the store is not empty: runs has 251 rows; restore into a new one" in capsys.readouterr().err
    assert asyncio.run(held()) == first


def damage_rows(backup: Path) -> str:
    path = backup / "rows" / "runs.jsonl"
    path.write_bytes(path.read_bytes().replace(b"first", b"f1rst", 1))
    return "runs.jsonl: is not as it was written"


def cut_rows(backup: Path) -> str:
    path = backup / "rows" / "users.jsonl"
    path.write_bytes(b"")
    return "users.jsonl: is not as it was written"


def damage_log(backup: Path) -> str:
    (path,) = (backup / "blobs").rglob("*.eval")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    return ".eval: is missing or not as it was written"


def lose_log(backup: Path) -> str:
    (path,) = (backup / "blobs").rglob("*.eval")
    path.unlink()
    return ".eval: is missing or not as it was written"


def lose_manifest(backup: Path) -> str:
    (backup / "manifest.json").unlink()
    return "is no backup; manifest.json is missing or damaged"


def from_later(backup: Path) -> str:
    manifest = json.loads((backup / "manifest.json").read_bytes())
    (backup / "manifest.json").write_text(json.dumps({**manifest, "schema": SCHEMA.version + 1}))
    return f"was written by a newer Control Tower (schema {SCHEMA.version + 1}"


@pytest.mark.parametrize("harm", [damage_rows, cut_rows, damage_log, lose_log, lose_manifest, from_later])
def test_of_a_damaged_backup_nothing_is_restored(
    choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], str]
) -> None:
    choose("local")
    asyncio.run(fill(tmp_path))
    assert ct("backup", tmp_path / "one") == 0
    said = harm(tmp_path / "one")
    capsys.readouterr()

    choose("local")
    assert ct("restore", tmp_path / "one") == 1

    assert said in capsys.readouterr().err
    rows, blobs, *_ = asyncio.run(held())
    assert not blobs
    assert {name for name, found in dict(rows).items() if found} == {"secrets"}  # pyright: ignore


def test_a_backup_is_there_whole_or_not_at_all(
    choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choose("local")
    asyncio.run(fill(tmp_path))
    (path,) = (SiteSettings.from_environment("private").data / "blobs").rglob("*.eval")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    assert ct("backup", tmp_path / "backups" / "one") == 1
    assert "this log has other bytes than when it came in; see ct viewer verify" in capsys.readouterr().err
    assert list((tmp_path / "backups").iterdir()) == []
    (tmp_path / "backups" / "one").mkdir()
    assert ct("backup", tmp_path / "backups" / "one") == 1
    assert "is there already; give a new folder" in capsys.readouterr().err


def test_nobody_else_may_read_a_backup(choose: Choose, tmp_path: Path) -> None:
    choose("local")
    assert ct("backup", tmp_path / "one") == 0
    assert (tmp_path / "one").stat().st_mode & 0o77 == 0


def test_a_backup_is_made_while_runs_come_in(choose: Choose, tmp_path: Path) -> None:
    choose("local")

    begun = asyncio.Event()

    async def registering(site: Site) -> None:
        for number in range(6):
            await register(site, ANN, log(tmp_path / f"{number}.eval", run_name=f"run {number}"))
            begun.set()

    async def work() -> None:
        async with open_site(SiteSettings.from_environment("private")) as site:
            coming = asyncio.create_task(registering(site))
            await begun.wait()
            await back_up(site.store, site.blobs, tmp_path / "one", with_blobs=True)
            await coming

    asyncio.run(work())
    choose("local")
    assert ct("restore", tmp_path / "one") == 0

    rows, blobs, _, shown, _ = asyncio.run(held())
    found = dict(rows)  # pyright: ignore
    assert shown
    # One that had only begun is not shown.
    for run in filter(is_whole, found["runs"]):
        assert sum(row.columns["run_id"] == run.id for row in found["trajectories"]) == 3
        assert any(run.columns["sha256"] in key for key in dict(blobs))  # pyright: ignore


def test_migrate_says_what_the_store_was_and_is(
    choose: Choose, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose("local")
    assert ct("migrate") == 0
    assert f"made a new store of schema {SCHEMA.version}" in capsys.readouterr().err
    assert ct("migrate") == 0
    assert f"the store is of schema {SCHEMA.version}" in capsys.readouterr().err
