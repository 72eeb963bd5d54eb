"""What every store of a fleet must do."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.ports import BodyLost, Store, Unreachable
from tests.fleet.memory import MemoryStore

T = TypeVar("T")
Opener = Callable[[], Store]


@pytest.fixture(params=["memory", "directory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same store again and again, as several processes would."""
    memory = MemoryStore()
    return lambda: memory if request.param == "memory" else DirectoryStore(tmp_path / "store")


def run(call: Awaitable[T]) -> T:
    async def it() -> T:
        return await call

    return asyncio.run(it())


def test_what_was_created_is_read_back_with_its_metadata(opened: Opener) -> None:
    etag = run(opened().create("f/one.eval", b"bytes", {"ct-status": "completed"}))
    found = run(opened().get("f/one.eval"))
    assert found and (found.body, found.etag, found.size) == (b"bytes", etag, 5)
    assert found.meta == {"ct-status": "completed"}
    head = run(opened().head("f/one.eval"))
    assert head and (head.etag, head.size, head.meta) == (found.etag, 5, found.meta)


def test_nothing_is_none(opened: Opener) -> None:
    assert run(opened().get("f/none")) is None
    assert run(opened().head("f/none")) is None
    assert list(run(opened().list("f/"))) == []
    run(opened().delete("f/none"))


def test_a_file_is_taken_as_a_body(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 3_000_000)
    assert run(opened().create("f/log", tmp_path / "log"))
    found = run(opened().get("f/log"))
    assert found and found.body == b"x" * 3_000_000
    assert (tmp_path / "log").exists()


def test_of_a_file_that_is_gone_nothing_is_written(opened: Opener, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(BodyLost, match="gone"):
        run(opened().create("f/one", gone, {"by": "a"}))
    assert run(opened().list("f/")) == []
    assert run(opened().create("f/one", b"first"))
    assert run(opened().create("f/one", gone)) is None


def test_the_second_create_changes_nothing(opened: Opener) -> None:
    run(opened().create("f/one", b"first", {"by": "a"}))
    assert run(opened().create("f/one", b"second", {"by": "b"})) is None
    found = run(opened().get("f/one"))
    assert found and (found.body, found.meta) == (b"first", {"by": "a"})


def test_of_many_creates_at_once_one_succeeds(opened: Opener) -> None:
    async def race(number: int) -> list[int]:
        results = await asyncio.gather(
            *(opened().create(f"f/{number}", str(n).encode(), {"by": str(n)}) for n in range(16))
        )
        return [n for n, etag in enumerate(results) if etag]

    for number in range(5):
        (winner,) = asyncio.run(race(number))
        found = run(opened().get(f"f/{number}"))
        assert found and (found.body, found.meta) == (str(winner).encode(), {"by": str(winner)})


def test_replace_asks_for_the_object_that_was_seen(opened: Opener) -> None:
    first = run(opened().create("f/one", b"1", {"by": "a"}))
    assert first
    assert run(opened().replace("f/one", b"x", etag="another")) is None
    second = run(opened().replace("f/one", b"2", {"by": "b"}, etag=first))
    assert second and second != first
    assert run(opened().replace("f/one", b"3", etag=first)) is None
    found = run(opened().get("f/one"))
    assert found and (found.body, found.etag, found.meta) == (b"2", second, {"by": "b"})


def test_what_is_gone_is_not_replaced(opened: Opener) -> None:
    etag = run(opened().create("f/one", b"1"))
    assert etag
    run(opened().delete("f/one"))
    assert run(opened().replace("f/one", b"2", etag=etag)) is None
    assert run(opened().get("f/one")) is None
    assert run(opened().create("f/one", b"3"))


def test_of_many_replaces_at_once_one_succeeds(opened: Opener) -> None:
    async def race(turn: int, etag: str) -> list[str | None]:
        return await asyncio.gather(
            *(opened().replace("f/one", f"{turn} {n}".encode(), etag=etag) for n in range(16))
        )

    etag = run(opened().create("f/one", b"start"))
    for turn in range(5):
        assert etag
        (etag,) = [new for new in asyncio.run(race(turn, etag)) if new]


def test_put_writes_whatever_is_there(opened: Opener) -> None:
    for body in (b"1", b"2"):
        etag = run(opened().put("f/control.json", body))
        found = run(opened().get("f/control.json"))
        assert found and (found.body, found.etag) == (body, etag)


def test_lists_one_level_in_order(opened: Opener) -> None:
    for name in ("f/b.eval", "f/a.eval", "f/claims/a.1", "f/claims/b.1", "fleet/c.eval"):
        run(opened().create(name, b"12", {"by": "a"}))
    assert [(one.key, one.size) for one in run(opened().list("f/"))] == [("f/a.eval", 2), ("f/b.eval", 2)]
    assert [one.key for one in run(opened().list("f/claims/"))] == ["f/claims/a.1", "f/claims/b.1"]
    assert [one.key for one in run(opened().list("f/claims/b"))] == ["f/claims/b.1"]
    assert [one.key for one in run(opened().list("f/", after="f/a.eval"))] == ["f/b.eval"]
    head = run(opened().head("f/a.eval"))
    assert head and head.etag == run(opened().list("f/"))[0].etag


def test_readers_see_whole_objects_while_they_are_replaced(opened: Opener) -> None:
    async def write(store: Store) -> None:
        etag = await store.create("f/one", b"0" * 100_000, {"all": "0"})
        for number in range(1, 20):
            assert etag
            digit = str(number % 10)
            etag = await store.replace("f/one", digit.encode() * 100_000, {"all": digit}, etag=etag)

    async def read(store: Store) -> None:
        for _ in range(40):
            found = await store.get("f/one")
            if found:
                assert found.body == found.meta["all"].encode() * 100_000

    async def both() -> None:
        await asyncio.gather(write(opened()), read(opened()), read(opened()))

    asyncio.run(both())


def test_what_is_deleted_takes_nothing_of_objects_with_longer_names(opened: Opener) -> None:
    for key in ("f/a", "f/ab", "f/a.b"):
        run(opened().create(key, b"", {"name": key}))
    run(opened().delete("f/a"))
    assert run(opened().head("f/a")) is None
    for key in ("f/ab", "f/a.b"):
        head = run(opened().head(key))
        assert head and head.meta == {"name": key}


def test_what_could_not_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, synced = DirectoryStore(tmp_path / "store"), list[int]()

    def fills(file: int) -> None:
        synced.append(file)
        if len(synced) == 2:  # the bytes fitted, the metadata does not
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fills)
    with pytest.raises(Unreachable, match="No space left on device"):
        run(store.create("f/a", b"bytes", {"name": "a"}))
    assert list((tmp_path / "store" / "f").iterdir()) == []
