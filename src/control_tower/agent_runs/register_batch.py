"""How an older client makes a run: documents in batches, the header with the last."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pydantic

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden
from control_tower.agent_runs.ingest import ArchiveFacts, inspect_archive
from control_tower.agent_runs.registering import (
    SERVER_FIELDS,
    begin,
    finish,
    is_whole,
    kept_document,
    of_begun,
    place_of,
    require_writer,
    said,
    whole_document,
)
from control_tower.agent_runs.rows import Place, trajectory_row
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import ALIASES, RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import All, Equals
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, texts
from control_tower.records.runs import SCHEMA_VERSION, RegisterBody

_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ADDRESS = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<alias>[^/?#]+)")
_LISTS = ("tags", "models", "control_settings")
_OBJECTS = ("metadata", "metrics", "cost_by_model")
_OF_RANGE = (
    "samplePath",
    "compressionMethod",
    "compressedStart",
    "compressedSize",
    "uncompressedSize",
    "crc32",
)
_OFTEN_OTHERWISE = frozenset({"source_file", "eval_log_url", "eval_sample_range"})
"""What an honest client may say otherwise when it tries again, and what was checked already."""


async def register_batch(site: Site, actor: Actor, body: JsonObject) -> None:
    """Takes a batch of an older client: documents, and with the last of them the run's header.

    The same batch again changes nothing; of any other nothing is seen unless all is.

    Args:
        site: Where.
        actor: Whose run it becomes.
        body: A `records.runs.RegisterBody`.

    Raises:
        BadRequest: A document or the header is not what the log says.
        Forbidden: It names a log of somebody else.
        Conflict: An id is taken by something else.
    """
    require_writer(actor)
    asked = _asked(body)
    documents: dict[str, list[JsonObject]] = {}
    for document in asked.trajectories:
        documents.setdefault(_id(document, "run_id"), []).append(document)
    headers = {} if asked.run is None else {_id(asked.run, "run_id"): asked.run}
    batches = [
        await _check(site, actor, id, documents.get(id, []), headers.get(id), asked.eval_log_sizes)
        for id in dict.fromkeys([*documents, *headers])
    ]
    for batch in batches:
        await _write(site, batch)


@dataclass(frozen=True)
class _Batch:
    """What a request brings for one run, found good."""

    begun: Row
    facts: ArchiveFacts
    rows: Sequence[Row]
    """That are not there yet."""
    header: JsonObject | None
    """None where it is not brought, or is there already."""


async def _check(
    site: Site,
    actor: Actor,
    run_id: str,
    documents: Sequence[JsonObject],
    header: JsonObject | None,
    sizes: Mapping[str, int],
) -> _Batch:
    alias = _alias(site, run_id, [*documents, *([header] if header else [])])
    log = await _log_of(site, actor, alias)
    if sizes.get(alias, log.listed["size"]) != log.listed["size"]:
        raise BadRequest(f"eval_log_sizes: {alias} has {log.listed['size']} bytes, not {sizes[alias]}")
    facts = await inspect_archive(site, str(log.columns["sha256"]))
    place = place_of(site, actor, run_id, alias)
    begun = await begin(site, place, facts, _shared(documents))
    if (begun.columns["creator"], begun.columns["alias"]) != (actor.user_id, alias):
        raise Conflict(f"run {run_id}: is another run")
    rows = await asyncio.to_thread(_rows, documents, of_begun(place, begun), facts, begun)
    new = await _new(site, rows, begun)
    if header is not None:
        begun, header = _with_header(begun, header, place.log_url)
    if new and is_whole(begun):
        raise Conflict(f"run {run_id}: is whole; trajectory {new[0].id} is none of it")
    return _Batch(begun, facts, new, header)


async def _write(site: Site, batch: _Batch) -> None:
    taken = await site.store.insert(TRAJECTORIES, batch.rows) if batch.rows else set[str]()
    await _new(site, [row for row in batch.rows if row.id in taken], batch.begun)
    if batch.header is not None:
        await finish(site, batch.begun, batch.header, batch.facts)


def _with_header(begun: Row, header: JsonObject, log_url: str) -> tuple[Row, JsonObject | None]:
    """The row that remembers what header was sent, and the header where it is still to be written."""
    own = {key: value for key, value in header.items() if key not in SERVER_FIELDS}
    sent = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
    if is_whole(begun):
        if begun.document.get("sent") != sent:
            raise Conflict(f"run {begun.id}: has another header")
        return begun, None
    own["name"] = str(own.get("name") or "run")
    own |= {name: texts(own, name) for name in _LISTS} | {name: child(own, name) for name in _OBJECTS}
    return replace(begun, document={**begun.document, "sent": sent}), {**own, "eval_log_url": log_url}


async def _new(site: Site, rows: Sequence[Row], run: Row) -> list[Row]:
    """The rows that are not there yet.

    Raises:
        Conflict: Another row of the same id is.
    """
    there = await site.store.get(TRAJECTORIES, [row.id for row in rows])
    for row in rows:
        if row.id in there and _own(there[row.id], run) != _own(row, run):
            raise Conflict(f"trajectory {row.id}: is another trajectory")
    return [row for row in rows if row.id not in there]


def _own(row: Row, run: Row) -> JsonObject:
    """What a client says of a trajectory, and says again when it tries again."""
    document = whole_document(row.document, run)
    dropped = SERVER_FIELDS | _OFTEN_OTHERWISE
    own = {key: value for key, value in document.items() if key not in dropped}
    if timing := child(own, "timing"):
        own["timing"] = {key: value for key, value in timing.items() if key != "converted_at"}
    return own


def _rows(documents: Sequence[JsonObject], place: Place, facts: ArchiveFacts, begun: Row) -> list[Row]:
    rows: dict[str, Row] = {}
    for document in documents:
        id = _id(document, "trajectory_id")
        member = facts.samples.get(_key(document, id))
        if member is None:
            raise BadRequest(f"trajectory {id}: the log has no sample {_key(document, id)}")
        given, ours = child(document, "eval_sample_range"), place.range_of(member, facts)
        if any(given.get(name) != ours[name] for name in _OF_RANGE):
            raise BadRequest(f"trajectory {id}: eval_sample_range is not where sample {member.key} stands")
        kept = kept_document(document, id, place, member, facts, begun)
        row = trajectory_row(kept, place, member)
        if rows.setdefault(id, row) != row:
            raise Conflict(f"trajectory {id}: is brought twice")
    return list(rows.values())


def _asked(body: JsonObject) -> RegisterBody:
    try:
        asked = RegisterBody.model_validate(body)
    except pydantic.ValidationError as error:
        raise BadRequest(said(error)) from None
    if asked.schema_version != SCHEMA_VERSION:
        raise BadRequest(f"schema_version: is {asked.schema_version}; this viewer takes {SCHEMA_VERSION}")
    return asked


def _alias(site: Site, run_id: str, records: Sequence[JsonObject]) -> str:
    """The one log that documents and header name."""
    named: set[str] = set()
    for record in records:
        address = _ADDRESS.match(str(record.get("eval_log_url")))
        if address is None or address["bucket"] != site.blobs.bucket:
            raise _no_log(str(record.get("eval_log_url")))
        named.add(address["alias"])
        if "eval_sample_range" in record:
            named.add(str(child(record, "eval_sample_range").get("key")))
    if len(named) != 1:
        raise BadRequest(f"run {run_id}: names {len(named)} logs; it must be one")
    return named.pop()


async def _log_of(site: Site, actor: Actor, alias: str) -> Row:
    """A log by its name, if the user has uploaded it or has a run of it."""
    row = (await site.store.get(ALIASES, [alias])).get(alias)
    own = All((Equals("alias", alias), Equals("creator", actor.user_id)))
    if row and (row.columns["owner"] == actor.user_id or await site.store.count(RUNS, own)):
        return row
    raise _no_log(alias)


def _no_log(name: str) -> Forbidden:
    return Forbidden(f"{name[:300]}: is no log that you have uploaded to this viewer")


def _shared(documents: Sequence[JsonObject]) -> JsonObject | None:
    return child(documents[0], "eval_metadata") or None if documents else None


def _key(document: JsonObject, id: str) -> SampleKey:
    sample, epoch = document.get("eval_sample_id"), document.get("epoch", 1)
    if not isinstance(sample, str) or not isinstance(epoch, int):
        raise BadRequest(f"trajectory {id}: names no sample: it needs eval_sample_id and epoch")
    return SampleKey(sample, epoch)


def _id(record: JsonObject, name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadRequest(f"{name}: {str(value)[:200]!r} is not 1 to 128 letters, digits, '_', '.' or '-'")
    return value
