"""How the bytes of a log arrive: in parts, so that an upload outlasts interruptions."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterable
from dataclasses import dataclass, replace

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden, NotFound
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import ALIASES, BLOB_MARKS, RUNS, UPLOADS
from control_tower.agent_runs.store.where import All, Equals
from control_tower.storage.blobs import OtherPart, OutOfSpace, PartMissing, blob_key

PART_SIZE = 16 * 1024**2
"""Bytes of each part but the last."""

REMOVAL_LASTS = 3600
"""Seconds for which a mark of a removal is heeded; who removes has ended long before, or has died."""

_TOUCHED_EVERY = 3600


@dataclass(frozen=True)
class UploadLimits:
    """What a site takes; sizes in bytes."""

    largest: int = 20 * 1024**3
    """Of one log."""
    largest_single: int = 5 * 1024**3
    """Of one log in a single request."""
    open_uploads: int = 8
    """Unfinished uploads of one user."""
    kept_free: int = 1024**3
    """What stays free on the disk."""


@dataclass(frozen=True)
class UploadPlan:
    """What is still to be sent."""

    upload_id: str
    exists: bool
    """Nothing: a run can be made of it."""
    parts_done: tuple[int, ...] = ()
    """Numbers of the parts that have arrived."""
    part_size: int = PART_SIZE
    """Bytes of each part but the last; they are numbered from 1."""


@dataclass(frozen=True)
class StoredLog:
    """A log that is there whole."""

    sha256: str
    md5: str
    size: int
    """Bytes."""
    existing: bool = False
    """Whether these bytes were there before."""


class Uploads:
    """The uploads of a site; a user sees only its own."""

    def __init__(self, site: Site, limits: UploadLimits | None = None) -> None:
        self._site = site
        self._limits = limits or UploadLimits()

    async def plan(self, actor: Actor, sha256: str, size: int, filename: str) -> UploadPlan:
        """Begins an upload, or finds the one that the same user has begun of the same log.

        It is said to be there already only to a user who can read it or has sent it.

        Args:
            actor: Who sends it.
            sha256: Of the whole log, hex.
            size: Bytes.
            filename: Of the log; only its last part is kept.

        Raises:
            BadRequest: No such log can be taken.
            Conflict: The user has too many unfinished uploads.
            OutOfSpace: There is no room.
            Forbidden: The user may not upload.
        """
        require_writer(actor)
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise BadRequest("sha256: must be 64 hexadecimal digits in lower case")
        require_size(size, self._limits.largest)
        row = await self._row_of(actor, sha256) or await self._begin(actor, sha256, size, filename)
        if row.listed["size"] != size:
            raise BadRequest(f"size: upload {row.id} of this sha256 is of {row.listed['size']} bytes")
        await require_kept(self._site, sha256)
        if row.columns["complete"] and await self._site.blobs.head(blob_key(sha256)) is None:
            row = replace(row, columns={**row.columns, "complete": False})
            await self._site.store.replace(UPLOADS, row)
        return await self._plan_of(row)

    async def status(self, actor: Actor, upload_id: str) -> UploadPlan:
        """What of an upload has arrived.

        Raises:
            NotFound: The user has no such upload.
        """
        return await self._plan_of(await self._own(actor, upload_id))

    async def put_part(
        self,
        actor: Actor,
        upload_id: str,
        number: int,
        data: AsyncIterable[bytes],
        *,
        sha256: str | None,
        size: int | None = None,
    ) -> None:
        """Keeps a part; the same again changes nothing, and nothing does when the upload is complete.

        Args:
            actor: Whose upload it is.
            upload_id: Of the upload.
            number: Of the part, from 1.
            data: Its bytes.
            sha256: Of the part, hex; None takes what comes.
            size: Bytes that the request says it has.

        Raises:
            NotFound: The user has no such upload.
            BadRequest: The upload has no such part, or not of this size.
            DigestMismatch: Other bytes than announced arrived; they are not kept.
            Conflict: Another part of this number is there.
            OutOfSpace: There is no room.
        """
        row = await self._own(actor, upload_id)
        whole: int = row.listed["size"]
        expected = min(PART_SIZE, whole - (number - 1) * PART_SIZE)
        if number < 1 or expected < 1:
            raise BadRequest(f"part {number}: this upload has parts 1 to {-(-whole // PART_SIZE)}")
        if size not in (None, expected):
            raise BadRequest(f"part {number}: must have {expected} bytes, not {size}")
        if row.columns["complete"]:
            # A client that is still sending would take an early answer for a broken connection.
            async for _ in data:
                pass
            return
        await self._touch(row)
        try:
            await self._site.blobs.put_part(upload_id, number, data, sha256=sha256, size=expected)
        except OtherPart as error:
            raise Conflict(str(error)) from None
        except PartMissing as error:
            # Another sender of the same log may have completed it.
            if not (await self._own(actor, upload_id)).columns["complete"]:
                raise Conflict(f"part {number}: {error}; send it again") from None

    async def complete(self, actor: Actor, upload_id: str) -> StoredLog:
        """Makes one log of the parts. May be asked again, and by several at once.

        Raises:
            NotFound: The user has no such upload.
            Conflict: A part is missing.
            DigestMismatch: The whole is not what was announced; its parts are dropped.
            OutOfSpace: There is no room; the parts are kept.
        """
        row = await self._own(actor, upload_id)
        sha256, size = str(row.columns["sha256"]), row.listed["size"]
        if not row.columns["complete"]:
            try:
                made = await self._site.blobs.assemble(upload_id, sha256=sha256, size=size)
            except PartMissing as error:
                # Another finisher may have been faster.
                row = await self._own(actor, upload_id)
                if not row.columns["complete"]:
                    raise Conflict(str(error)) from None
            else:
                row = await self._completed(actor, row, StoredLog(sha256, made.md5, size, made.existing))
        await self._site.blobs.abandon(upload_id)
        return StoredLog(sha256, row.listed["md5"], size, row.listed["existing"])

    async def abandon(self, actor: Actor, upload_id: str) -> None:
        """Forgets an upload and its parts; a complete log stays for the runs that use it.

        Raises:
            NotFound: The user has no such upload.
        """
        row = await self._own(actor, upload_id)
        await self._site.blobs.abandon(upload_id)
        await self._site.store.delete(UPLOADS, _of(actor, str(row.columns["sha256"])))

    async def find(self, actor: Actor, sha256: str) -> StoredLog | None:
        """A log that the user has sent or can read, which may become a run; None: it is to be sent."""
        blob = await self._site.blobs.head(blob_key(sha256))
        if blob is None:
            return None
        row = await self._row_of(actor, sha256)
        if row and row.columns["complete"]:
            return StoredLog(sha256, row.listed["md5"], blob.size, existing=True)
        return await self._readable(actor, sha256)

    async def _begin(self, actor: Actor, sha256: str, size: int, filename: str) -> Row:
        known = await self._readable(actor, sha256)
        if known is None:
            await self._require_few(actor)
            await require_room(self._site, self._limits, size)
        listed = {"size": known.size if known else size, "filename": re.split(r"[/\\]", filename)[-1][:255]}
        columns = {"owner": actor.user_id, "sha256": sha256, "changed": rfc3339(self._site.now())}
        made = Row(secrets.token_hex(16), {**columns, "complete": False}, listed)
        if known:
            made = _complete(made, known)
        await self._site.store.insert(UPLOADS, [made])
        return await self._row_of(actor, sha256) or made

    async def _completed(self, actor: Actor, row: Row, log: StoredLog) -> Row:
        while True:
            columns = {**row.columns, "changed": rfc3339(self._site.now())}
            changed = _complete(replace(row, columns=columns), log)
            if await self._site.store.replace(UPLOADS, changed):
                return changed
            row = await self._own(actor, row.id)
            if row.columns["complete"]:
                return row

    async def _plan_of(self, row: Row) -> UploadPlan:
        if row.columns["complete"]:
            return UploadPlan(row.id, exists=True)
        parts = await self._site.blobs.parts(row.id)
        return UploadPlan(row.id, exists=False, parts_done=tuple(sorted(parts)))

    async def _own(self, actor: Actor, upload_id: str) -> Row:
        row = (await self._site.store.get(UPLOADS, [upload_id])).get(upload_id)
        if row is None or row.columns["owner"] != actor.user_id:
            raise NotFound(f"{upload_id}: you have no such upload")
        return row

    async def _row_of(self, actor: Actor, sha256: str) -> Row | None:
        found = await self._site.store.find(UPLOADS, _of(actor, sha256), limit=1)
        return found[0] if found else None

    async def _touch(self, row: Row) -> None:
        if str(row.columns["changed"]) < rfc3339(self._site.now() - _TOUCHED_EVERY):
            columns = {**row.columns, "changed": rfc3339(self._site.now())}
            await self._site.store.replace(UPLOADS, replace(row, columns=columns))

    async def _readable(self, actor: Actor, sha256: str) -> StoredLog | None:
        """Who can read a run can read its log; so can who has sent it."""
        store = self._site.store
        named = await store.find(ALIASES, Equals("sha256", sha256), limit=1)
        run = All((Equals("sha256", sha256), Equals("deleted", None)))
        if named and (await store.count(RUNS, run) or await store.count(ALIASES, _of(actor, sha256))):
            return StoredLog(sha256, named[0].listed["md5"], named[0].listed["size"], existing=True)
        return None

    async def _require_few(self, actor: Actor) -> None:
        unfinished = All((Equals("owner", actor.user_id), Equals("complete", False)))
        count = await self._site.store.count(UPLOADS, unfinished)
        if count >= self._limits.open_uploads:
            raise Conflict(f"you have {count} unfinished uploads; complete or abandon one of them first")


async def name_log(site: Site, filename: str, owner: str, log: StoredLog) -> bool:
    """Gives a log the name that addresses of it end with; again it changes nothing.

    Args:
        site: Where.
        filename: `<run id>.eval`
        owner: Id of the user.
        log: What was uploaded.

    Returns:
        False when it is the name of another log, or of another user's.
    """
    listed = {"size": log.size, "md5": log.md5, "sha256": log.sha256, "created": rfc3339(site.now())}
    row = Row(filename, {"owner": owner, "sha256": log.sha256}, listed)
    if not await site.store.insert(ALIASES, [row]):
        return True
    there = (await site.store.get(ALIASES, [filename])).get(filename)
    return there is not None and all(there.columns[name] == value for name, value in row.columns.items())


async def require_kept(site: Site, sha256: str) -> None:
    """Whoever refers to a log asks this afterwards: `gc` may just be removing it, as nothing did.

    Raises:
        Conflict: It may.
    """
    mark = (await site.store.get(BLOB_MARKS, [sha256])).get(sha256)
    if mark and mark.listed.get("removing", 0) > site.now() - REMOVAL_LASTS:
        raise Conflict("an unused log of the same bytes is being removed; try again in a minute")


async def require_room(site: Site, limits: UploadLimits, size: int) -> None:
    """Refuses what does not fit.

    Raises:
        OutOfSpace: There is no room for so many bytes.
    """
    free = await site.blobs.free()
    # Parts and the whole are there at the same time.
    if free is not None and free - 2 * size < limits.kept_free:
        raise OutOfSpace(f"there is no room for {size} bytes: the disk of the logs has {free}")


def require_size(size: int, largest: int) -> None:
    """Refuses logs without bytes or with too many.

    Raises:
        BadRequest: It is such a one.
    """
    if not 0 < size <= largest:
        raise BadRequest(f"size: must be 1 to {largest} bytes, not {size}")


def require_writer(actor: Actor) -> None:
    """Refuses who may not upload.

    Raises:
        Forbidden: The token or the role lacks the scope.
    """
    if not actor.may("runs:write"):
        raise Forbidden("you may not upload logs: your token or role lacks runs:write")


def _complete(row: Row, log: StoredLog) -> Row:
    listed = {**row.listed, "md5": log.md5, "existing": log.existing}
    return replace(row, columns={**row.columns, "complete": True}, listed=listed)


def _of(actor: Actor, sha256: str) -> All:
    return All((Equals("owner", actor.user_id), Equals("sha256", sha256)))
