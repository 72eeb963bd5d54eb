"""Several trajectories as one ZIP, made while it is sent."""

from __future__ import annotations

import json
import zipfile
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import Response

from control_tower.agent_runs.queries import StoredSample
from control_tower.agent_runs.runs import Runs
from control_tower.errors import ExpectedError
from control_tower.logs.json_text import dumps
from control_tower.viewer.actors import limits_of
from control_tower.viewer.api.shared import pool_of
from control_tower.viewer.auth.actor import site_of
from control_tower.viewer.content import attachment, is_head, member_bytes, streaming
from control_tower.viewer.limits import ARCHIVES

if TYPE_CHECKING:
    from control_tower.agent_runs.actor import Actor
    from control_tower.storage.blobs import Blobs

_LEVEL = 1
_LARGE = 2 * 1024**3
_TYPE = "application/zip"


async def zip_answer(request: Request, actor: Actor, ids: list[str]) -> Response:
    """The ZIP of some trajectories; those that cannot be read are named in its `failed.json`."""
    headers = {"Content-Disposition": attachment("trajectories.zip")}
    if is_head(request):
        return Response(headers=headers, media_type=_TYPE)
    return await streaming(_parts(request, actor, ids), 200, headers, _TYPE)


async def _parts(request: Request, actor: Actor, ids: list[str]) -> AsyncGenerator[bytes]:
    site, pool = site_of(request), pool_of(request)
    runs, out = Runs(site), _Out()
    failed: list[dict[str, str]] = []
    async with limits_of(request).place(ARCHIVES, actor.user_id):
        archive = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)  # pyright: ignore[reportCallIssue, reportArgumentType]
        for number, trajectory_id in enumerate(ids):
            try:
                found = await runs.sample_of(trajectory_id)
                await pool.run(_check, site.blobs, found)
            except ExpectedError as error:
                failed.append({"trajectory_id": trajectory_id, "error": str(error)})
                continue
            folder = f"trajectories/{number:03d}-{trajectory_id}"
            entries = _entries(archive, out, folder, site.blobs, found)
            async with aclosing(pool.iterate(entries)) as parts:
                async for part in parts:
                    yield part
        for name, value in {"failed.json": failed, "manifest.json": {"trajectory_ids": ids}}.items():
            archive.writestr(_info(name, 0), json.dumps(value))
        archive.close()
        yield out.taken()


def _check(blobs: Blobs, found: StoredSample) -> None:
    """Reads a sample to its end: once its entry has begun, it cannot be taken back."""
    for _ in member_bytes(blobs.source(found.blob), found.range):
        pass


def _entries(
    archive: zipfile.ZipFile, out: _Out, folder: str, blobs: Blobs, found: StoredSample
) -> Generator[bytes]:
    archive.writestr(_info(f"{folder}/metadata.json", 0), dumps(found.metadata))
    info = _info(f"{folder}/sample.json", found.range["uncompressedSize"])
    with archive.open(info, "w", force_zip64=info.file_size >= _LARGE) as entry:
        for part in member_bytes(blobs.source(found.blob), found.range):
            entry.write(part)
            yield out.taken()
    yield out.taken()


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.file_size = size
    return info


class _Out:
    """What was written and not yet sent; it cannot be sought in, so the ZIP is written straight on."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        """All of it, which is forgotten."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken
