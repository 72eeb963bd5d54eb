"""Removing what nothing refers to any more: it may run at any time, beside servers and beside itself.

Whoever comes to refer to a log first writes its row and then looks for a mark of the log's removal; whoever
removes a log first writes the mark and then looks for rows. So one of them sees the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.rows import REGISTERING, REMOVING
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Position, Row, Table
from control_tower.agent_runs.store.rows import position
from control_tower.agent_runs.store.tables import ALIASES, BLOB_MARKS, RUNS, TRAJECTORIES, UPLOADS
from control_tower.agent_runs.store.where import EVERY, All, Compare, Equals, Not, Where
from control_tower.agent_runs.uploads import REMOVAL_LASTS
from control_tower.storage.blobs import blob_key

DAY = 86_400.0

KEPT_DELETED = 30 * DAY
"""Seconds for which a deleted run can be restored."""

KEPT_UNFINISHED = 7 * DAY
"""Seconds after which an upload or a registration that nobody continued is dropped."""

KEPT_UNUSED = DAY
"""Seconds for which a whole log waits for its run; and between the two marks of one that has none."""

_PAGE = 1000
_ALL = 2**31 - 1


@dataclass(frozen=True)
class Removed:
    """One thing that was removed, or would be."""

    kind: str
    """`run`, `trajectories`, `upload`, `parts`, `name`, `log`, or `assembly` of a log that died halfway."""
    id: str
    why: str
    size: int | None = None
    """Bytes, where it has some of its own."""


async def collect(site: Site, *, dry_run: bool = False) -> AsyncGenerator[Removed]:
    """Removes deleted runs, interrupted registrations and uploads, logs without runs, each after its time.

    A log without a run is marked at first, and removed by a later call when it still has none.

    Args:
        site: Where.
        dry_run: Only say what would be removed.
    """
    now = site.now()
    for steps in (_runs, _orphans, _uploads, _parts, _names, _logs):
        async for removed in steps(site, now, dry_run):
            yield removed
    if not dry_run and (count := await site.blobs.clean(now - KEPT_UNUSED)):
        yield Removed("assembly", str(count), "died halfway")


async def _runs(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    async for row in _rows(site, RUNS, Not(Equals("deleted", None))):
        status, since = row.columns["status"], str(row.columns["deleted"])
        if status == REMOVING:
            why = "its removal was interrupted"
        elif status == REGISTERING and since < rfc3339(now - KEPT_UNFINISHED):
            why = f"its registration was interrupted; it began at {since}"
        elif status != REGISTERING and since < rfc3339(now - KEPT_DELETED):
            why = f"deleted at {since}"
        else:
            continue
        if dry_run or await _remove_run(site, row):
            yield Removed("run", row.id, why)


async def _orphans(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    """Trajectories without a run: its row is written first and removed last, so there should be none."""
    of_runs = await site.store.facet(TRAJECTORIES, "run_id", limit=_ALL)
    runs = {row.id async for row in _rows(site, RUNS)}
    for run_id, count in of_runs:
        if run_id in runs:
            continue
        columns = {"status": REMOVING, "deleted": rfc3339(now), "created": rfc3339(now)}
        row = Row(str(run_id), columns)
        if not dry_run and (await site.store.insert(RUNS, [row]) or not await _remove_run(site, row)):
            continue
        yield Removed("trajectories", str(run_id), f"{count} without a run")


async def _uploads(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    old = Compare("changed", "<", rfc3339(now - min(KEPT_UNUSED, KEPT_UNFINISHED)))
    async for row in _rows(site, UPLOADS, old):
        complete, changed = bool(row.columns["complete"]), str(row.columns["changed"])
        if not complete and changed >= rfc3339(now - KEPT_UNFINISHED):
            continue
        unchanged = All((Equals("id", row.id), Equals("changed", changed), Equals("complete", complete)))
        if not dry_run:
            if not await site.store.delete(UPLOADS, unchanged):
                continue
            await site.blobs.abandon(row.id)
        if not complete:
            yield Removed("upload", row.id, f"not continued since {changed}", row.listed["size"])


async def _parts(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    """Parts of no upload: the request that sent a log at once died."""
    async for each in site.blobs.uploads():
        if each.changed < now - KEPT_UNUSED and not await site.store.get(UPLOADS, [each.upload]):
            if not dry_run:
                await site.blobs.abandon(each.upload)
            yield Removed("parts", each.upload, "of no upload", each.size)


async def _names(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    """Names of logs of which no run was made."""
    names = [row async for row in _rows(site, ALIASES)]
    used = {str(row.columns.get("alias")) async for row in _rows(site, RUNS)}
    for row in names:
        if row.id in used or row.listed["created"] >= rfc3339(now - KEPT_UNUSED):
            continue
        named = Equals("alias", row.id)
        if not dry_run:
            if await site.store.count(RUNS, named):
                continue
            await site.store.delete(ALIASES, Equals("id", row.id))
            if await site.store.count(RUNS, named):
                await site.store.insert(ALIASES, [replace(row, rev=1)])
                continue
        yield Removed("name", row.id, f"no run since {row.listed['created']}")


async def _logs(site: Site, now: float, dry_run: bool) -> AsyncGenerator[Removed]:
    tables = (UPLOADS, ALIASES, RUNS)
    used = {str(row.columns.get("sha256")) for table in tables async for row in _rows(site, table)}
    marks = {row.id: row async for row in _rows(site, BLOB_MARKS)}
    # Another call may be at these.
    busy = {id for id, row in marks.items() if row.listed.get("removing", 0) > now - REMOVAL_LASTS}
    async for blob in site.blobs.blobs():
        sha256 = blob.key.rpartition("/")[2].removesuffix(".eval")
        if sha256 in used or sha256 in busy or blob.key != blob_key(sha256):
            continue
        mark = marks.pop(sha256, None)
        if mark is None:
            if not dry_run:
                await site.store.insert(BLOB_MARKS, [Row(sha256, {"marked": rfc3339(now)})])
        elif str(mark.columns["marked"]) <= rfc3339(now - KEPT_UNUSED) and (
            dry_run or await _remove_log(site, mark, blob.key)
        ):
            yield Removed("log", sha256, f"no run since {mark.columns['marked']}", blob.size)
    if not dry_run:
        for id in marks.keys() - busy:
            await site.store.delete(BLOB_MARKS, Equals("id", id))


async def _remove_run(site: Site, row: Row) -> bool:
    """Trajectories first, the row last, which meanwhile lets nobody restore or register it."""
    found = (await site.store.get(RUNS, [row.id])).get(row.id)
    if found is None or found.columns.get("deleted") != row.columns["deleted"]:
        return False
    removing = replace(found, columns={**found.columns, "status": REMOVING})
    if not await site.store.replace(RUNS, removing):
        return False
    await site.store.delete(TRAJECTORIES, Equals("run_id", row.id))
    return await site.store.delete(RUNS, All((Equals("id", row.id), Equals("status", REMOVING)))) > 0


async def _remove_log(site: Site, mark: Row, key: str) -> bool:
    began = site.now()
    if not await site.store.replace(BLOB_MARKS, replace(mark, listed={"removing": began})):
        return False
    of_log = Equals("sha256", mark.id)
    used = [await site.store.count(table, of_log) for table in (UPLOADS, ALIASES, RUNS)]
    # After so long, others no longer heed the mark.
    removed = not any(used) and site.now() - began < REMOVAL_LASTS / 2
    if removed:
        await site.blobs.delete(key)
    await site.store.delete(BLOB_MARKS, Equals("id", mark.id))
    return removed


async def _rows(site: Site, table: Table, where: Where = EVERY) -> AsyncGenerator[Row]:
    """All rows, without documents; those that come meanwhile may be among them."""
    after: Position | None = None
    while page := await site.store.find(table, where, after=after, limit=_PAGE):
        for row in page:
            yield row
        after = position(page[-1], None)
