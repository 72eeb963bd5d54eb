"""Whether what the store says of kept runs is what their logs say."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from control_tower.agent_runs.errors import BadRequest, NotFound
from control_tower.agent_runs.ingest import ArchiveFacts, inspect_archive
from control_tower.agent_runs.registering import is_whole, whole_document
from control_tower.agent_runs.rows import Place
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Position, Row, Sort
from control_tower.agent_runs.store.rows import position
from control_tower.agent_runs.store.tables import ALIASES, RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import Equals
from control_tower.agent_runs.verdicts import disagreement
from control_tower.errors import OperationError
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import child
from control_tower.storage.blobs import blob_key

_RUNS_AT_ONCE = 100
_TRAJECTORIES_AT_ONCE = 200
_OF_STORE = ("eTag", "versionId")
"""What a copy of a store says otherwise of the same log."""


@dataclass(frozen=True)
class Difference:
    """Something of a run that is not as it must be."""

    run_id: str
    what: str


@dataclass
class _Log:
    """A log that was looked at, with what is wrong with it."""

    sha256: str
    facts: ArchiveFacts | None
    size: int
    md5: str | None
    """None where its bytes were not read."""
    wrong: str | None


async def verify(site: Site, *, deep: bool = False) -> AsyncGenerator[Difference]:
    """Compares all runs with their logs, deleted ones that can be restored included.

    Args:
        site: Where.
        deep: Also reads all bytes of the logs and all documents of trajectories.
    """
    log: _Log | None = None
    by_log = Sort("sha256")
    after: Position | None = None
    while runs := await site.store.find(RUNS, sort=by_log, after=after, limit=_RUNS_AT_ONCE, documents=True):
        for run in runs:
            if not is_whole(run):
                continue
            sha256 = str(run.columns["sha256"])
            if log is None or log.sha256 != sha256:
                log = await _look_at(site, sha256, deep)
            async for what in _differences(site, run, log, deep):
                yield Difference(run.id, what)
        after = position(runs[-1], by_log)


async def _look_at(site: Site, sha256: str, deep: bool) -> _Log:
    blob = await site.blobs.head(blob_key(sha256))
    if blob is None:
        return _Log(sha256, None, 0, None, "its log is gone")
    log = _Log(sha256, None, blob.size, None, None)
    try:
        if deep:
            whole, log.md5 = await _digests(site, sha256)
            if whole != sha256:
                log.wrong = f"its log has the SHA-256 {whole}, not {sha256}"
                return log
        log.facts = await inspect_archive(site, sha256)
    except (BadRequest, NotFound, OperationError) as error:
        log.wrong = f"its log cannot be read: {error}"
    return log


async def _digests(site: Site, sha256: str) -> tuple[str, str]:
    whole, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    async for piece in site.blobs.read(blob_key(sha256)):
        await asyncio.to_thread(whole.update, piece)
        await asyncio.to_thread(md5.update, piece)
    return whole.hexdigest(), md5.hexdigest()


async def _differences(site: Site, run: Row, log: _Log, deep: bool) -> AsyncGenerator[str]:
    if log.wrong:
        yield log.wrong
    alias = str(run.columns["alias"])
    named = (await site.store.get(ALIASES, [alias])).get(alias)
    if named is None:
        yield f"its log's name {alias} is gone"
    elif named.columns["sha256"] != log.sha256:
        yield f"its log's name {alias} is that of another log"
    elif log.wrong:
        return
    elif named.listed["size"] != log.size:
        yield f"its log has {log.size} bytes, not {named.listed['size']}"
    elif log.md5 not in (None, named.listed["md5"]):
        yield f"its log has the MD5 {log.md5}, not {named.listed['md5']}"
    if log.facts:
        async for what in _of_trajectories(site, run, log.facts, deep):
            yield what


async def _of_trajectories(site: Site, run: Row, facts: ArchiveFacts, deep: bool) -> AsyncGenerator[str]:
    alias = str(run.columns["alias"])
    place = Place(run.id, str(run.columns["creator"]), str(run.columns["created"]), alias, "")
    seen: set[SampleKey] = set()
    count = 0
    after: Position | None = None
    of_run = Equals("run_id", run.id)
    while rows := await site.store.find(
        TRAJECTORIES, of_run, after=after, limit=_TRAJECTORIES_AT_ONCE, documents=deep
    ):
        for row in rows:
            count += 1
            key = SampleKey(str(row.listed["eval_sample_id"]), int(row.listed["epoch"]))
            if key not in facts.samples:
                yield f"trajectory {row.id}: its log has no sample {key}"
            elif key in seen:
                yield f"trajectory {row.id}: is another one of sample {key}"
            elif deep and (what := _of_document(row, run, place, facts, key)):
                yield f"trajectory {row.id}: {what}"
            seen.add(key)
        after = position(rows[-1], None)
    for key in sorted(facts.samples.keys() - seen):
        yield f"sample {key}: has no trajectory"
    if run.listed["trajectory_count"] != count:
        yield f"its header counts {run.listed['trajectory_count']} trajectories, there are {count}"


def _of_document(row: Row, run: Row, place: Place, facts: ArchiveFacts, key: SampleKey) -> str | None:
    member = facts.samples[key]
    document = whole_document(row.document, run)
    ours = {name: value for name, value in place.range_of(member, facts).items() if name not in _OF_STORE}
    kept = child(document, "eval_sample_range")
    different = [name for name, value in ours.items() if kept.get(name) != value]
    if different:
        return f"sample {key} stands elsewhere in the log: {', '.join(different)}"
    return disagreement(document, member.verdicts)
