"""Whoever dies while it keeps a blob leaves it whole or absent, and the next one finishes."""

import asyncio
import multiprocessing
import random
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from control_tower.storage.blobs import blob_key
from control_tower.storage.opening import open_blobs
from tests.storage import children
from tests.storage.opened import Opened, send, sha256, whole
from tests.support.s3_server import S3Server

MiB = 1024**2

_children = multiprocessing.get_context("forkserver")
_children.set_forkserver_preload(["tests.storage.children", "boto3"])


def finished(target: Any, *arguments: Any, dies_after: float | None = None) -> int:
    """How a child ended: 0, or a signal's number below it."""
    child = _children.Process(target=target, args=arguments)
    child.start()
    if dies_after is not None:
        time.sleep(dies_after)
        child.kill()
    child.join(60)
    assert child.exitcode is not None
    return child.exitcode


async def left_and_finished(store: Opened, parts: list[bytes]) -> None:
    """What a dead child left is whole or absent; going on from there makes it whole, and leaves nothing."""
    data = b"".join(parts)
    key = blob_key(sha256(data))
    objects = [name for name in store.everything() if not name.startswith("staged/")]
    assert objects in ([], [key])
    if objects:
        assert await whole(store.blobs, key) == data
    there = await store.blobs.parts("u1")
    assert all(part.size == len(parts[number - 1]) for number, part in there.items())
    await send(store.blobs, "u1", *parts)
    made = await store.blobs.assemble("u1", sha256=sha256(data))
    assert made.existing == bool(objects)
    assert await whole(store.blobs, key) == data
    await store.blobs.abandon("u1")
    assert store.everything() == [key]


def steps_survived(
    address: str, server: S3Server | None, parts: list[bytes], environment: Mapping[str, str]
) -> int:
    """Dies at the first step, at the second, and so on to the last; how many there are."""

    async def judge() -> None:
        store = Opened("", address, await open_blobs(address), server)
        await left_and_finished(store, parts)
        await store.blobs.delete(blob_key(sha256(b"".join(parts))))
        await store.blobs.close()

    for step in range(1, 1000):
        ended = finished(children.upload_and_die, address, dict(environment), parts, step)
        assert ended in (0, -signal.SIGKILL)
        asyncio.run(judge())
        if ended == 0:
            return step - 1
    raise AssertionError("an upload of so few parts has fewer steps")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"one"], id="one part"),
        pytest.param([b"one", b"two"], id="two parts", marks=pytest.mark.slow),
    ],
)
def test_a_death_at_any_step_in_a_directory(tmp_path: Path, parts: list[bytes]) -> None:
    assert steps_survived(str(tmp_path / "blobs"), None, parts, {}) > 40


@pytest.mark.slow
def test_a_death_at_any_request_to_s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    assert steps_survived("s3://plain/deaths", s3_server, [b"data"], s3_server.environment) > 10


@pytest.mark.slow
def test_a_death_at_any_moment_in_a_directory(tmp_path: Path) -> None:
    parts = [bytes([number]) * (4 * MiB) for number in range(6)]
    address = str(tmp_path / "blobs")
    moments = random.Random(4)
    deaths = 0
    for _ in range(12):
        ended = finished(children.upload, address, parts, dies_after=moments.uniform(0.0, 0.6))
        deaths += ended != 0

        async def judge() -> None:
            await left_and_finished(Opened("", address, await open_blobs(address), None), parts)

        asyncio.run(judge())
        shutil.rmtree(address)
    assert deaths > 2


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "parts"), [("directory", 64), ("s3", 12)])
def test_memory_does_not_grow_with_the_log(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, parts: int
) -> None:
    address, environment = str(tmp_path / "blobs"), {}
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        address, environment = "s3://plain/memory", dict(server.environment)
    report = tmp_path / "report"
    assert finished(children.upload_and_measure, address, environment, parts, 16 * MiB, report) == 0
    assert int(report.read_text()) < 48
    shutil.rmtree(tmp_path)
