"""Sending a log to a viewer, where it becomes a run: in parts that outlast interruptions, once only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_tower.client.prepared import Known, Prepared, Progress, check_log, pieces, prepared
from control_tower.client.session import NotThere, Viewer, all_of, open_viewer, run
from control_tower.errors import StateError, ValidationError
from control_tower.logs.json_text import JsonObject, dumps
from control_tower.storage.source import FileSource

AT_ONCE = 4
"""Parts on their way at the same time."""

ATTEMPTS = 3
"""How often the rest is sent when the viewer has changed its mind on what is missing."""

_TOLD_TOGETHER = 64 * 1024
"""Bytes of documents that are sent in one piece."""


@dataclass(frozen=True)
class Overrides:
    """What the run is called, where its log should not decide; None leaves it to the log."""

    name: str | None = None
    policy: str | None = None
    task_set: str | None = None
    tags: tuple[str, ...] | None = None
    description: str | None = None

    def as_json(self) -> JsonObject:
        """Those that are given."""
        given: JsonObject = {key: value for key, value in vars(self).items() if value is not None}
        return {**given, "tags": list(self.tags)} if self.tags is not None else given


@dataclass(frozen=True)
class Uploaded:
    """A run that is there now."""

    run_id: str
    url: str
    """Of its page."""
    trajectories: int
    existing: bool
    """Whether it was there before."""
    eval_log_url: str


def upload_log(
    log: Path,
    overrides: Overrides | None = None,
    *,
    new: bool = False,
    url: str | None = None,
    progress: Progress | None = None,
) -> Uploaded:
    """Makes a run of a log.

    The same log with the same overrides is the same run, however often it is sent.

    Args:
        log: A finished log of today's format.
        overrides: What the run is called.
        new: Make another run, although there may be one.
        url: Address of the viewer; None is the configured one.
        progress: Is told how far it is.

    Raises:
        ExpectedError: The log cannot become a run; the viewer cannot be reached, or refuses it.
    """
    known = check_log(log)
    wanted = Overrides() if overrides is None else overrides
    if not new and (there := run(_find(known, wanted, url))):
        return there
    with prepared(known, progress) as ready:
        return run(_upload(ready, wanted, url, progress, new=new))


async def _find(known: Known, overrides: Overrides, url: str | None) -> Uploaded | None:
    """The run that there is of a log; None when it is still to be made, or refused."""
    try:
        async with open_viewer(url) as viewer:
            return await _register(viewer, known.sha256, overrides, lambda: iter(()), new=False)
    except (NotThere, ValidationError):
        return None


async def _upload(
    ready: Prepared, overrides: Overrides, url: str | None, progress: Progress | None, *, new: bool
) -> Uploaded:
    async with open_viewer(url) as viewer:
        try:
            await _send_log(viewer, ready, progress)
        except NotThere:
            from control_tower.client.older import is_older, upload_to_older

            if not await is_older(viewer):
                raise
            return await upload_to_older(viewer, ready, overrides)
        return await _register(viewer, ready.sha256, overrides, ready.documents, new=new)


async def _send_log(viewer: Viewer, ready: Prepared, progress: Progress | None) -> None:
    """Sends what the viewer does not have yet of the log's bytes."""
    announced = {"sha256": ready.sha256, "size": ready.size, "filename": ready.path.name}
    for left in reversed(range(ATTEMPTS)):
        plan = (await viewer.call("POST", "/api/v1/uploads", json=announced)).json()
        if plan["exists"]:
            return
        try:
            await _send_missing(viewer, ready, plan, progress)
        except StateError:
            # Somebody else may have finished the same upload meanwhile.
            if not left:
                raise
        else:
            return


async def _send_missing(viewer: Viewer, ready: Prepared, plan: JsonObject, progress: Progress | None) -> None:
    place, size = f"/api/v1/uploads/{plan['upload_id']}", int(plan["part_size"])
    count = -(-ready.size // size)
    missing = sorted({*range(1, count + 1)} - {*plan["parts_done"]})
    done = count - len(missing)
    free = asyncio.Semaphore(AT_ONCE)

    async def send(number: int) -> None:
        nonlocal done
        start = (number - 1) * size
        async with free:
            await _send_part(viewer, f"{place}/parts/{number}", ready, start, min(size, ready.size - start))
        done += 1
        if progress:
            progress("uploading", min(done * size, ready.size), ready.size)

    await all_of(send(number) for number in missing)
    await viewer.call("POST", f"{place}/complete")


async def _send_part(viewer: Viewer, path: str, ready: Prepared, start: int, length: int) -> None:
    with FileSource(ready.path) as source:
        digest = await asyncio.to_thread(_digest, source, start, length)

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces(source, start, length):
                yield piece

        headers = {"Content-Length": str(length), "Content-Digest": f"sha-256=:{digest}:"}
        await viewer.call("PUT", path, content=body, headers=headers)


def _digest(source: FileSource, start: int, length: int) -> str:
    digest = hashlib.sha256()
    for piece in pieces(source, start, length):
        digest.update(piece)
    return base64.b64encode(digest.digest()).decode()


async def _register(
    viewer: Viewer,
    sha256: str,
    overrides: Overrides,
    documents: Callable[[], Iterator[bytes]],
    *,
    new: bool,
) -> Uploaded:
    first: dict[str, Any] = {"sha256": sha256, "overrides": overrides.as_json(), "new": new}

    async def body() -> AsyncIterator[bytes]:
        held = bytearray(dumps(first) + b"\n")
        for line in documents():
            held += line
            if len(held) >= _TOLD_TOGETHER:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    headers = {"Content-Type": "application/x-ndjson"}
    answer = await viewer.call("POST", "/api/v1/runs", content=body, headers=headers, again=not new)
    told = answer.json()
    fields = ("run_id", "url", "trajectories", "existing", "eval_log_url")
    return Uploaded(**{field: told[field] for field in fields})
