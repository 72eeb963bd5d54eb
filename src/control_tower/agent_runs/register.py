"""How a log that was uploaded becomes a run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

import pydantic

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.errors import BadRequest, Conflict, NotFound
from control_tower.agent_runs.ingest import ArchiveFacts, inspect_archive
from control_tower.agent_runs.register_batch import register_batch
from control_tower.agent_runs.registering import (
    begin,
    find_run,
    finish,
    is_whole,
    kept_document,
    normal_tags,
    of_begun,
    place_of,
    require_writer,
    said,
    show,
)
from control_tower.agent_runs.rows import Place, trajectory_row
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.tables import TRAJECTORIES
from control_tower.agent_runs.uploads import Uploads, name_log, require_kept
from control_tower.agent_runs.verdicts import disagreement
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import BadJson, JsonObject, strict_loads
from control_tower.logs.run_header import RunDigest, run_document
from control_tower.logs.trajectories import finite, shown_metadata
from control_tower.records.runs import RegisterRun

__all__ = ["Registered", "register_batch", "register_run"]

LONGEST_LINE = 8 * 1024**2
"""Bytes of one document."""

BATCH_BYTES = 1024**2
BATCH_LINES = 200


@dataclass(frozen=True)
class Registered:
    """A run that is there now."""

    run_id: str
    trajectories: int
    existing: bool
    """Whether it was there before."""
    eval_log_url: str


async def register_run(site: Site, actor: Actor, body: AsyncIterable[bytes]) -> Registered:
    """Makes a run of an uploaded log.

    The same user, log and overrides are the same run: asked again, or by two at once, there is one. It is
    seen when the last of it is written. One that was deleted is seen again.

    Args:
        site: Where.
        actor: Whose run it becomes.
        body: JSON lines, in pieces of any size. The first is a `records.runs.RegisterRun`. Each other line is
            a document of `logs.trajectories.trajectory_document` without ids and addresses of the store, one
            for each sample of the log in any order. Run header and ranges are worked out here.

    Raises:
        BadRequest: The log or a document is refused; the message says which and why.
        NotFound: The log was not uploaded.
        Forbidden: The user may not upload.
    """
    require_writer(actor)
    async with aclosing(_lines(body)) as lines:
        asked = _asked(await anext(lines, b""))
        overrides = asked.overrides.model_dump(exclude_none=True)
        if "tags" in overrides:
            overrides["tags"] = normal_tags(overrides["tags"])
        run_id = _run_id(actor, asked, overrides)
        place = place_of(site, actor, run_id, f"{run_id}.eval")
        there = await find_run(site, run_id)
        if there is None or not is_whole(there):
            facts, begun = await _begun(site, actor, asked.sha256, place)
            there = begun if is_whole(begun) else None
            if there is None:
                digest = await _take(site, lines, facts, begun, of_begun(place, begun))
                header = {**run_document(facts.header, digest), **overrides, "eval_log_url": place.log_url}
                made = await finish(site, begun, header, facts)
                return Registered(run_id, len(facts.samples), not made, place.log_url)
        # A client that is still sending would take an early answer for a broken connection.
        async for _ in lines:
            pass
    there = await show(site, there)
    return Registered(run_id, int(there.listed["trajectory_count"]), True, place.log_url)


@dataclass
class _Intake:
    """What came so far."""

    facts: ArchiveFacts
    begun: Row
    place: Place
    seen: set[SampleKey] = field(default_factory=set[SampleKey])
    digest: RunDigest = field(default_factory=RunDigest)

    def rows(self, lines: Sequence[bytes]) -> list[Row]:
        """Documents as rows."""
        return [self._row(line) for line in lines]

    def _row(self, line: bytes) -> Row:
        try:
            document = strict_loads(line)
        except BadJson as error:
            raise BadRequest(f"document {len(self.seen) + 1}: {error}") from None
        key = _key(document, len(self.seen) + 1)
        member = self.facts.samples.get(key)
        if member is None:
            raise BadRequest(f"document {len(self.seen) + 1}: the log has no sample {key}")
        if key in self.seen:
            raise BadRequest(f"sample {key}: has two documents")
        if different := disagreement(document, member.verdicts):
            raise BadRequest(f"sample {key}: {different}")
        self.seen.add(key)
        self.digest.add(document)
        id = _digest(self.place.run_id, key.member)
        kept = kept_document(document, id, self.place, member, self.facts, self.begun)
        return trajectory_row(kept, self.place, member)


async def _begun(site: Site, actor: Actor, sha256: str, place: Place) -> tuple[ArchiveFacts, Row]:
    log = await Uploads(site).find(actor, sha256)
    if log is None:
        raise NotFound(f"there is no log with the SHA-256 {sha256} that you have uploaded; upload it first")
    facts = await inspect_archive(site, sha256)
    begun = await begin(site, place, facts, finite(shown_metadata(facts.header)))
    if not await name_log(site, place.alias, place.owner, log):
        raise Conflict(f"{place.alias}: is the name of another log")
    await require_kept(site, sha256)
    return facts, begun


async def _take(
    site: Site, lines: AsyncIterable[bytes], facts: ArchiveFacts, begun: Row, place: Place
) -> RunDigest:
    intake = _Intake(facts, begun, place)
    batch: list[bytes] = []

    async def keep() -> None:
        rows = await asyncio.to_thread(intake.rows, batch)
        # Those that are there already are of an earlier attempt at the same.
        await site.store.insert(TRAJECTORIES, rows)
        batch.clear()

    async for line in lines:
        batch.append(line)
        if len(batch) >= BATCH_LINES or sum(map(len, batch)) >= BATCH_BYTES:
            await keep()
    await keep()
    if lacking := facts.samples.keys() - intake.seen:
        raise BadRequest(f"sample {min(lacking)}: has no document")
    return intake.digest


def _asked(line: bytes) -> RegisterRun:
    try:
        return RegisterRun.model_validate(strict_loads(line))
    except BadJson as error:
        raise BadRequest(f"the first line: {error}") from None
    except pydantic.ValidationError as error:
        raise BadRequest(f"the first line: {said(error)}") from None


def _run_id(actor: Actor, asked: RegisterRun, overrides: JsonObject) -> str:
    again = secrets.token_hex(16) if asked.new else ""
    return _digest(actor.user_id, asked.sha256, json.dumps(overrides, sort_keys=True), again)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _key(document: object, number: int) -> SampleKey:
    if isinstance(document, dict):
        found = cast(JsonObject, document)
        id, epoch = found.get("eval_sample_id"), found.get("epoch", 1)
        if isinstance(id, str) and isinstance(epoch, int):
            return SampleKey(id, epoch)
    raise BadRequest(f"document {number}: names no sample: it needs eval_sample_id and epoch")


async def _lines(body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The lines of a body that are not empty, without their ends."""
    rest = bytearray()
    async for piece in body:
        looked_at = len(rest)
        rest += piece
        start = 0
        while (end := rest.find(b"\n", max(start, looked_at))) >= 0:
            if line := bytes(rest[start:end]).strip():
                yield line
            start = end + 1
        del rest[:start]
        if len(rest) > LONGEST_LINE:
            raise BadRequest(f"a line has more than {LONGEST_LINE} bytes")
    if line := bytes(rest).strip():
        yield line
