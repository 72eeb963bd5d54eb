"""From a run's first trajectory to its header: rows that nobody sees until the run is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pydantic

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden
from control_tower.agent_runs.rows import REGISTERING, REMOVING, Place, begun_row, run_row
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import Equals
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject

if TYPE_CHECKING:
    from control_tower.agent_runs.ingest import ArchiveFacts, Member

SERVER_FIELDS = frozenset(
    {"_id", "created_at", "created_by", "modifications", "comments", "step_comments", "trajectory_count"}
)
"""What no client says of a run or a trajectory."""

_SHARED = "eval_metadata"


def require_writer(actor: Actor) -> None:
    """Refuses users who may not upload."""
    if not actor.may("runs:write"):
        raise Forbidden("you may not make runs: your token or role lacks runs:write")


def place_of(site: Site, actor: Actor, run_id: str, alias: str) -> Place:
    """Where a run's log is by its name, for a run that begins now."""
    return Place(run_id, actor.user_id, rfc3339(site.now()), alias, f"s3://{site.blobs.bucket}/{alias}")


async def find_run(site: Site, run_id: str) -> Row | None:
    """The row of a run, whole or not."""
    return (await site.store.get(RUNS, [run_id])).get(run_id)


def is_whole(row: Row) -> bool:
    """Whether a run's header has come, and none of it is being removed."""
    return row.columns["status"] not in (REGISTERING, REMOVING)


async def begin(site: Site, place: Place, facts: ArchiveFacts, shared: JsonObject | None) -> Row:
    """The row of a run whose trajectories come; that of an earlier attempt where there is one.

    Args:
        site: Where.
        place: Of the run.
        facts: Of its log.
        shared: The `eval_metadata` that its trajectories need not repeat.
    """
    await site.store.insert(RUNS, [begun_row(place, facts, shared)])
    row = await find_run(site, place.run_id)
    if row is None or row.columns["status"] == REMOVING:
        raise Conflict(f"run {place.run_id}: was removed as it came; try again")
    return row


def of_begun(place: Place, begun: Row) -> Place:
    """A place as the first attempt at the run had it: all its trajectories are of one moment."""
    return replace(place, created=str(begun.columns["created"]))


async def finish(site: Site, begun: Row, header: JsonObject, facts: ArchiveFacts) -> bool:
    """Makes a run seen.

    Args:
        site: Where.
        begun: Its row.
        header: What clients say of it.
        facts: Of its log.

    Returns:
        False when another has done so meanwhile.

    Raises:
        BadRequest: Not every sample of the log has its trajectory.
        Conflict: The row was changed otherwise.
    """
    rows = await site.store.find(TRAJECTORIES, Equals("run_id", begun.id))
    kept = [SampleKey(str(row.listed["eval_sample_id"]), int(row.listed["epoch"])) for row in rows]
    lacking = facts.samples.keys() - kept
    if lacking and await _is_as_begun(site, begun):
        raise BadRequest(f"run {begun.id}: there is no trajectory of sample {min(lacking)}")
    if not lacking and await _finish(site, begun, header, facts, rows):
        return True
    there = await find_run(site, begun.id)
    if there is None or not is_whole(there):
        raise Conflict(f"run {begun.id}: was changed as it came; try again")
    return False


async def _is_as_begun(site: Site, begun: Row) -> bool:
    """Whether nobody has finished the run since, or removed it and its trajectories."""
    there = await find_run(site, begun.id)
    return there is not None and (there.rev, there.columns) == (begun.rev, begun.columns)


async def _finish(
    site: Site, begun: Row, header: JsonObject, facts: ArchiveFacts, rows: Sequence[Row]
) -> bool:
    if len(rows) != len(facts.samples):
        raise BadRequest(f"run {begun.id}: a sample has more than one trajectory")
    whole: JsonObject = {
        **header,
        "tags": normal_tags(header["tags"]),
        "run_id": begun.id,
        "trajectory_count": len(rows),
        "created_at": begun.columns["created"],
        "created_by": begun.columns["creator"],
        "comments": [],
    }
    return await site.store.replace(RUNS, run_row(begun, whole, facts, rows))


async def show(site: Site, row: Row) -> Row:
    """Makes a deleted run seen again."""
    while row.columns.get("deleted"):
        shown = replace(row, columns={**row.columns, "deleted": None})
        if await site.store.replace(RUNS, shown):
            return replace(shown, rev=row.rev + 1)
        found = await find_run(site, row.id)
        if found is None or not is_whole(found):
            raise Conflict(f"run {row.id}: was removed meanwhile")
        row = found
    return row


def kept_document(
    document: JsonObject, trajectory_id: str, place: Place, member: Member, facts: ArchiveFacts, begun: Row
) -> JsonObject:
    """A trajectory's document as it is stored: with the store's ids, addresses and range of the sample."""
    kept = {key: value for key, value in document.items() if key not in SERVER_FIELDS}
    kept |= {
        "trajectory_id": trajectory_id,
        "run_id": place.run_id,
        "eval_log_url": place.sample_url(member),
        "eval_sample_id": member.key.id,
        "epoch": member.key.epoch,
        "eval_sample_range": place.range_of(member, facts),
        "created_at": place.created,
        "created_by": place.owner,
    }
    shared, own = begun.document["eval_metadata"], kept.get(_SHARED)
    if shared is not None and own == shared:
        del kept[_SHARED]
    elif shared is not None:
        kept[_SHARED] = own
    return kept


def whole_document(kept: JsonObject, run: Row) -> JsonObject:
    """A trajectory's document with what it shares with its run."""
    if _SHARED in kept:
        return kept if kept[_SHARED] is not None else {k: v for k, v in kept.items() if k != _SHARED}
    shared = run.document["eval_metadata"]
    return kept if shared is None else {**kept, _SHARED: shared}


def said(error: pydantic.ValidationError) -> str:
    """The first finding about an input, without the input."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def normal_tags(tags: Sequence[str]) -> list[str]:
    """Tags without surrounding spaces, each once, none empty; those of a log may be joined by commas."""
    each = (tag.strip() for text in tags for tag in text.split(","))
    return list(dict.fromkeys(tag for tag in each if tag))
