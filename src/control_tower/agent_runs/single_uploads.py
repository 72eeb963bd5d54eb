"""How the bytes of a log arrive in one request, at an address that is its own permission."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import urlencode

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden, NotFound, Stale
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.tables import ALIASES, RUNS
from control_tower.agent_runs.store.where import All, Equals
from control_tower.agent_runs.uploads import (
    PART_SIZE,
    StoredLog,
    UploadLimits,
    name_log,
    require_kept,
    require_room,
    require_size,
    require_writer,
)
from control_tower.storage.blobs import DigestMismatch, blob_key

HOLDS_FOR = 3600
"""Seconds for which an address takes a log."""

_PURPOSE = "put of a log"


@dataclass(frozen=True)
class SinglePlan:
    """Where to send a log."""

    path: str
    """Below the site's address; signed, so that no token is needed."""
    bucket: str
    key: str
    expires_at: float
    """Unix seconds."""


class SingleUploads:
    """Uploads of older clients: plan, put, head."""

    def __init__(self, site: Site, limits: UploadLimits | None = None) -> None:
        self._site = site
        self._limits = limits or UploadLimits()

    async def plan(self, actor: Actor, filename: str, size: int) -> SinglePlan:
        """An address that takes one log.

        Args:
            actor: Who sends it.
            filename: `<run id>.eval`
            size: Bytes.

        Raises:
            BadRequest: No such log can be taken.
            Conflict: There is a log of this name.
            OutOfSpace: There is no room.
            Forbidden: The user may not upload.
        """
        require_writer(actor)
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,122}\.eval", filename):
            raise BadRequest("filename: must be <run id>.eval")
        require_size(size, self._limits.largest_single)
        if await self._site.store.get(ALIASES, [filename]):
            raise Conflict(f"{filename}: there is a log of this name")
        await require_room(self._site, self._limits, size)
        expires = int(self._site.now()) + HOLDS_FOR
        signature = self._site.sign(_PURPOSE, _signed_text(filename, size, expires, actor.user_id))
        query = urlencode({"size": size, "exp": expires, "user": actor.user_id, "sig": signature})
        return SinglePlan(f"/blobs/in/{filename}?{query}", self._site.blobs.bucket, filename, expires)

    async def put(
        self, filename: str, query: Mapping[str, str], data: AsyncIterable[bytes], size: int | None
    ) -> StoredLog:
        """Takes a log at an address of `plan`.

        Args:
            filename: From the path.
            query: The address's own.
            data: The log.
            size: Bytes that the request says it has.

        Raises:
            Forbidden: The address is not one of ours, or has run out.
            BadRequest: The log has another size than was planned; nothing of it is kept.
            Stale: There is another log of this name.
            OutOfSpace: There is no room.
        """
        planned, user = self._verified(filename, query)
        if size not in (None, planned):
            raise BadRequest(f"{filename}: {planned} bytes were planned, not {size}")
        log = await self._take(filename, planned, data)
        if not await name_log(self._site, filename, user, log):
            raise Stale(f"{filename}: there is another log of this name")
        await require_kept(self._site, log.sha256)
        if await self._site.blobs.head(blob_key(log.sha256)) is None:
            raise Conflict(f"{filename}: was removed as it arrived; send it again")
        return log

    async def head(self, actor: Actor, filename: str) -> StoredLog:
        """A log by its name.

        Raises:
            NotFound: There is none that the user may read.
            Forbidden: The user may not upload.
        """
        require_writer(actor)
        found = (await self._site.store.get(ALIASES, [filename])).get(filename)
        if found:
            run = All((Equals("alias", filename), Equals("deleted", None)))
            if found.columns["owner"] == actor.user_id or await self._site.store.count(RUNS, run):
                sha256, listed = str(found.columns["sha256"]), found.listed
                return StoredLog(sha256, listed["md5"], listed["size"], existing=True)
        raise NotFound(f"{filename}: there is no such log")

    async def _take(self, filename: str, size: int, data: AsyncIterable[bytes]) -> StoredLog:
        blobs = self._site.blobs
        upload = secrets.token_hex(16)
        cut = _Cut(data)
        try:
            for number, start in enumerate(range(0, size, PART_SIZE), 1):
                expected = min(PART_SIZE, size - start)
                async with aclosing(cut.next(expected)) as part:
                    await blobs.put_part(upload, number, part, sha256=None, size=expected)
            if not await cut.ended():
                raise DigestMismatch(f"more than {size} bytes")
            made = await blobs.assemble(upload, size=size)
            return StoredLog(made.sha256, made.md5, size, made.existing)
        except DigestMismatch:
            raise BadRequest(f"{filename}: {size} bytes were planned, more or fewer arrived") from None
        finally:
            await blobs.abandon(upload)

    def _verified(self, filename: str, query: Mapping[str, str]) -> tuple[int, str]:
        size, expires, user = (query.get(name, "") for name in ("size", "exp", "user"))
        if re.fullmatch(r"[0-9]{1,15}", size) and re.fullmatch(r"[0-9]{1,15}", expires):
            text = _signed_text(filename, int(size), int(expires), user)
            if self._site.signed(_PURPOSE, text, query.get("sig", "")) and int(expires) > self._site.now():
                return int(size), user
        raise Forbidden("this address takes no log, or no longer; plan the upload again")


class _Cut:
    """A stream taken in slices."""

    def __init__(self, data: AsyncIterable[bytes]) -> None:
        self._data = aiter(data)
        self._rest = b""

    async def next(self, size: int) -> AsyncGenerator[bytes]:
        """The next bytes, fewer at the end."""
        while size and not await self.ended():
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield piece

    async def ended(self) -> bool:
        """Whether nothing follows."""
        while not self._rest:
            found = await anext(self._data, None)
            if found is None:
                return True
            self._rest = found
        return False


def _signed_text(filename: str, size: int, expires: int, user: str) -> str:
    return f"PUT\n{filename}\n{size}\n{expires}\n{user}"
