"""What every place for a fleet's secrets must do, and what the file does beyond it."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from control_tower.errors import OperationError
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.ports import Secrets
from control_tower.fleet.secrets_file import FileSecrets
from tests.fleet.memory import MemorySecrets

T = TypeVar("T")
Opener = Callable[[], Secrets]
VALUES = {"DEMO_API_KEY": "sk-\u00e9\n'\"\\$x", "OTHER_TOKEN": "12345678"}


@pytest.fixture(params=["memory", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same secrets again and again, as several processes would."""
    memory = MemorySecrets()
    return lambda: memory if request.param == "memory" else FileSecrets(LocalPlace("f", tmp_path))


def run(call: Awaitable[T]) -> T:
    async def it() -> T:
        return await call

    return asyncio.run(it())


def test_what_was_published_is_fetched_as_it_was(opened: Opener) -> None:
    run(opened().publish("f", VALUES))
    assert run(opened().fetch("f")) == VALUES


def test_what_is_published_takes_the_place_of_all_before(opened: Opener) -> None:
    run(opened().publish("f", VALUES))
    run(opened().publish("f", {"NEW_KEY": "other"}))
    assert run(opened().fetch("f")) == {"NEW_KEY": "other"}


def test_what_was_revoked_or_never_published_is_not_there(opened: Opener) -> None:
    assert run(opened().fetch("f")) == {}
    run(opened().revoke("f"))
    run(opened().publish("f", VALUES))
    run(opened().revoke("f"))
    assert run(opened().fetch("f")) == {}


def test_fleets_have_their_own(opened: Opener) -> None:
    run(opened().publish("f", VALUES))
    run(opened().publish("g", {"KEY": "of g"}))
    run(opened().revoke("g"))
    assert run(opened().fetch("f")) == VALUES


def test_readers_see_all_values_or_those_before(opened: Opener) -> None:
    def values(number: int) -> dict[str, str]:
        return {f"KEY_{n}": f"{number}" * 1000 for n in range(20)}

    async def write() -> None:
        for number in range(2, 20):
            await opened().publish("f", values(number))

    async def read() -> None:
        for _ in range(30):
            found = await opened().fetch("f")
            assert len(found) == 20
            assert len(set(found.values())) == 1

    async def both() -> None:
        await opened().publish("f", values(1))
        await asyncio.gather(write(), read(), read())

    asyncio.run(both())


def test_nobody_else_can_open_the_file_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, modes = LocalPlace("f", tmp_path), list[int]()
    real = os.fsync

    def look(file: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        real(file)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        run(FileSecrets(place).publish("f", VALUES))
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert stat.S_IMODE(place.secrets.stat().st_mode) == 0o600
    assert [path.name for path in place.machine.iterdir()] == ["secrets.json"]


def test_a_damaged_file_is_named_and_not_shown(tmp_path: Path) -> None:
    place = LocalPlace("f", tmp_path)
    place.machine.mkdir(parents=True)
    place.secrets.write_text('{"KEY": "canary-value')
    with pytest.raises(OperationError, match="is no file of secrets") as raised:
        run(FileSecrets(place).fetch("f"))
    assert "canary" not in str(raised.value)
