"""What children of the tests do with blobs: die at one step, or measure themselves."""

from __future__ import annotations

import asyncio
import io
import os
import resource
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from control_tower.storage import s3_object
from control_tower.storage.opening import open_blobs
from tests.storage.opened import sha256, stream

_FILE_CALLS = ("open", "mkdir", "link", "unlink", "rmdir", "fsync", "scandir", "stat")


class Death:
    """Kills this process before or after one of its counted calls, never twice."""

    def __init__(self, at: int) -> None:
        self._left = at

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that counts twice: before it, and after it."""

        def dying(*args: Any, **kwargs: Any) -> Any:
            self._step()
            result = call(*args, **kwargs)
            self._step()
            return result

        return dying

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingClient:
    """A client of S3 that dies around a request."""

    def __init__(self, client: Any, death: Death) -> None:
        self._client = client
        self._death = death

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._client, name)
        return inner if name == "get_paginator" else self._death.around(inner)


def upload_and_die(address: str, environment: dict[str, str], parts: list[bytes], at: int) -> None:
    """A whole upload `u1`: its parts, the assembly, the end of it; dead at a step, if there are so many."""
    os.environ.update(environment)
    death = Death(at)
    if address.startswith("s3://"):
        client = DyingClient(s3_object.make_client(), death)
        s3_object.make_client = lambda connections=10: client
        from control_tower.storage import s3

        s3.make_client = s3_object.make_client
        asyncio.run(_upload(address, parts))
    else:
        for name in _FILE_CALLS:
            setattr(os, name, death.around(getattr(os, name)))
        io.open = death.around(io.open)
        asyncio.run(_upload(address, parts))


def upload(address: str, parts: list[bytes]) -> None:
    """The same without a death of its own."""
    asyncio.run(_upload(address, parts))


async def _upload(address: str, parts: list[bytes]) -> None:
    blobs = await open_blobs(address)
    for number, part in enumerate(parts, 1):
        await blobs.put_part("u1", number, stream(part), sha256=sha256(part), size=len(part))
    await blobs.assemble("u1", sha256=sha256(b"".join(parts)))
    await blobs.abandon("u1")
    await blobs.close()


def upload_and_measure(
    address: str, environment: dict[str, str], parts: int, size: int, report: Path
) -> None:
    """Uploads and reads back many parts of zeros; reports by how many MiB its memory grew at most."""
    os.environ.update(environment)

    async def zeros() -> AsyncGenerator[bytes]:
        for _ in range(0, size, 65536):
            yield bytes(65536)

    async def all_of_it() -> int:
        blobs = await open_blobs(address)
        # What is loaded once is not growth.
        await blobs.check()
        await blobs.put_part("warm", 1, stream(b"x"), sha256=None, size=None)
        await blobs.assemble("warm")
        before = _peak()
        waiting = asyncio.Semaphore(4)

        async def send(number: int) -> None:
            async with waiting:
                await blobs.put_part("u1", number, zeros(), sha256=None, size=size)

        await asyncio.gather(*(send(number) for number in range(1, parts + 1)))
        made = await blobs.assemble("u1", size=parts * size)
        count = 0
        async for piece in blobs.read(made.blob.key, pinned=made.blob):
            count += len(piece)
        assert count == parts * size
        await blobs.abandon("u1")
        await blobs.close()
        return _peak() - before

    report.write_text(str(asyncio.run(all_of_it())))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
