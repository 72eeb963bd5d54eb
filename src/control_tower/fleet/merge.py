"""One log out of the accepted results of a fleet: exactly what it sealed, samples copied as they are."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from control_tower.errors import StateError
from control_tower.fleet.documents import Claim, Seal, SealEntry
from control_tower.fleet.facts import Decided
from control_tower.fleet.keys import Keys
from control_tower.fleet.plan import FleetPlan, Job, read_fleet
from control_tower.fleet.ports import Object, Store
from control_tower.fleet.verdicts import read_verdict
from control_tower.fleet.wire import Unreadable
from control_tower.inspect_private import sample_summary
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.attempts import expected_samples
from control_tower.logs.joined import Taken, Union, join
from control_tower.logs.json_text import JsonObject, child
from control_tower.logs.results import stats_of
from control_tower.logs.zip_reader import DamagedArchive
from control_tower.storage.source import BytesSource

T = TypeVar("T")
_Found = tuple[Object | None, Object | None]
"""A verdict and the claim of its attempt, where they are."""

_AHEAD = 4
"""Logs that are read from the store while another is copied."""

_OF_STATS = ("started_at", "completed_at", "connection_limit_history")
"""What of a log's stats its samples do not say themselves."""


@dataclass(frozen=True)
class MergedFleet:
    """What a merge made."""

    path: Path
    failed: tuple[str, ...]
    """Ids of the jobs that failed; their errored samples are in the log where there are any."""
    missing: tuple[str, ...]
    """`<sample> (epoch <n>)` of each job without a sample in the log."""
    alarms: tuple[str, ...] = ()
    """Results that were not accepted, and why; their samples are among the missing."""


async def merge_fleet(store: Store, fleet: str, folder: Path, partial: bool = False) -> MergedFleet:
    """Writes one log of a fleet's accepted results.

    Args:
        store: Of the fleet.
        fleet: Its id.
        folder: Where the log goes.
        partial: Merge what is there of a fleet that is not sealed.

    Raises:
        StateError: There is no such fleet, it is not sealed, or what it sealed has changed.
        OperationError: The store does not answer, or the log cannot be written.
    """
    keys, plan = Keys(fleet), await read_fleet(store, fleet)
    seal = await _seal(store, keys)
    if seal is None and not partial:
        raise StateError(
            f"fleet {fleet} is not sealed, because some of its jobs are open; "
            f"what is there: ct fleet merge {fleet} --partial"
        )
    whole = await store.get(keys.header)
    if whole is None:
        raise StateError(f"fleet {fleet} has no {keys.header}, so that its logs cannot be merged")
    with _opened(keys.header, whole) as archive:
        merge = _Merge(plan, seal, archive.header())
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(merge.write, store, loop, folder)


@dataclass(frozen=True)
class _Sealed:
    number: int
    jobs: dict[str, SealEntry]


@dataclass
class _Merge:
    plan: FleetPlan
    seal: _Sealed | None
    whole: JsonObject
    """The header of the whole run."""
    known: Union = field(default_factory=Union)
    stats: list[JsonObject] = field(default_factory=list[JsonObject])
    accepted: list[tuple[Job, Decided]] = field(default_factory=list[tuple[Job, Decided]])
    failed: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    alarms: list[str] = field(default_factory=list[str])

    def write(self, store: Store, loop: asyncio.AbstractEventLoop, folder: Path) -> MergedFleet:
        """Writes the log; in a thread beside the loop that the store needs."""
        self.known.add(self.whole)
        order = {key: at for at, key in enumerate(expected_samples(self.whole))}
        jobs = sorted(self.plan.jobs, key=lambda job: order.get((job.sample, job.epoch), len(order)))
        path = folder / self._name()
        with (
            closing(_ahead(loop, (self._read(store, job) for job in jobs))) as read,
            closing(self._taken(jobs, read)) as samples,
        ):
            join(path, samples, self._header, len(jobs))
        return MergedFleet(path, tuple(self.failed), tuple(self.missing), tuple(self.alarms))

    async def _read(self, store: Store, job: Job) -> _Found:
        keys = Keys(self.plan.fleet)
        if self.seal is not None and job.id not in self.seal.jobs:
            return None, None
        found = await store.get(keys.verdict(job.id))
        if self.seal is not None and (found is None or found.etag != self.seal.jobs[job.id].etag):
            raise StateError(f"{keys.verdict(job.id)}: is not what fleet {self.plan.fleet} sealed")
        attempt = read_verdict(job.id, found).attempt if found else 0
        return found, await store.get(keys.claim(job.id, attempt)) if attempt else None

    def _taken(self, jobs: Sequence[Job], read: Iterable[_Found]) -> Generator[Taken]:
        for job, (found, claim) in zip(jobs, read, strict=True):
            taken = self._accept(job, found, claim) if found else None
            if taken is None:
                self.missing.append(f"{job.sample} (epoch {job.epoch})")
            else:
                yield taken

    def _accept(self, job: Job, found: Object, claim: Object | None) -> Taken | None:
        """The sample that a verdict brings; None when it brings none, or does not count."""
        verdict = read_verdict(job.id, found)
        if verdict.status == "failed":
            self.failed.append(job.id)
        try:
            _check_digest(found)
            _check_claim(verdict, claim)
            archive = _opened(Keys(self.plan.fleet).verdict(job.id), found)
            if verdict.status == "failed" and not archive.sample_keys():
                return None
            taken, header = _only_sample(job, archive), archive.header()
        except (_NotAccepted, DamagedArchive) as problem:
            self.alarms.append(f"the result of job {job.id} ({job.sample}) is not accepted: {problem}")
            return None
        stats = child(header, "stats")
        self.stats.append({key: stats[key] for key in _OF_STATS if key in stats})
        self.known.add(header)
        self.accepted.append((job, verdict))
        return taken

    def _header(self, rows: Sequence[JsonObject]) -> JsonObject:
        status = self._status(rows)
        header: JsonObject = {
            "version": self.whole.get("version", 2),
            "status": status,
            "eval": self._spec(),
            "plan": child(self.whole, "plan"),
            "stats": stats_of(rows, self.stats),
        }
        if "invalidated" in self.whole:
            header["invalidated"] = self.whole["invalidated"]
        if self.missing and status == "error":
            text = f"{len(self.missing)} of {len(self.plan.jobs)} samples are missing"
            header["error"] = {"message": text, "traceback": text, "traceback_ansi": text}
        return header

    def _status(self, rows: Sequence[JsonObject]) -> str:
        """As a run of one process would have ended."""
        if self.missing:
            return "error" if self.seal else "cancelled"
        errors, limit = sum(bool(row.get("error")) for row in rows), self._config.get("fail_on_error")
        if limit is False or not errors:
            return "success"
        if limit is None or limit is True:
            return "error"
        return "error" if errors >= (limit * len(rows) if limit < 1 else limit) else "success"

    def _spec(self) -> JsonObject:
        completed = [verdict for _, verdict in self.accepted if verdict.status == "completed"]
        provenance: dict[str, JsonObject] = {}
        for job, verdict in self.accepted:
            epochs = provenance.setdefault(job.sample, {})
            epochs[str(job.epoch)] = {"attempt": verdict.attempt, "worker": verdict.worker}
        spec = self.known.complete(self.whole["eval"])
        spec.update({key: self._id(key) for key in ("eval_id", "run_id", "task_id")})
        spec["metadata"]["fleet"] = {
            "fleet_id": self.plan.fleet,
            "seal": self.seal.number if self.seal else None,
            "jobs": len(self.plan.jobs),
            "completed": len(completed),
            "failed": len(self.failed),
            "repeated": sum(verdict.attempt > 1 for verdict in completed),
            "samples": provenance,
        }
        return spec

    @property
    def _config(self) -> JsonObject:
        return child(self.whole["eval"], "config")

    def _id(self, what: str) -> str:
        """The same for the same merge; without a seal for the same results."""
        of: Any = (
            self.seal.number
            if self.seal
            else [(job.id, verdict.attempt, verdict.status) for job, verdict in self.accepted]
        )
        return hashlib.sha256(f"{what}:{self.plan.fleet}:{of}".encode()).hexdigest()[:32]

    def _name(self) -> str:
        spec = self.whole["eval"]
        created = re.sub(r"[^0-9T]", "-", str(spec.get("created")))
        task = re.sub(r"[^A-Za-z0-9.-]+", "-", str(spec.get("task")).rpartition("/")[2])
        number = self.seal.number if self.seal else 0
        end = "-partial" if self.seal is None else f"-{number}" if number > 1 else ""
        return f"{created}_{task}_{self.plan.fleet}{end}.eval"


class _NotAccepted(Exception):
    """Why a result does not count."""


async def _seal(store: Store, keys: Keys) -> _Sealed | None:
    """The last seal."""
    numbers = [keys.number_of(entry.key) for entry in await store.list(keys.seals)]
    found = await store.get(keys.seal(max(numbers))) if numbers else None
    try:
        return _Sealed(max(numbers), Seal.read(found.body).jobs) if found else None
    except Unreadable as error:
        raise StateError(f"{keys.seal(max(numbers))}: cannot be read: {error}") from None


def _check_claim(verdict: Decided, claim: Object | None) -> None:
    """Refuses a result of a worker that had not claimed the attempt."""
    if verdict.status == "failed" and not verdict.worker:
        return
    try:
        worker = Claim.read(claim.body).worker if claim else None
    except Unreadable:
        worker = None
    if worker is None:
        raise _NotAccepted(f"nobody claimed attempt {verdict.attempt}, which it is said to be of")
    if worker != verdict.worker:
        raise _NotAccepted(f"it is of {verdict.worker!r}, and {worker} claimed attempt {verdict.attempt}")


def _check_digest(found: Object) -> None:
    """Refuses bytes that are not those which the worker wrote."""
    expected = found.meta.get("ct-sha256")
    if expected != hashlib.sha256(found.body).hexdigest():
        raise _NotAccepted("its bytes are not those that were written")


def _only_sample(job: Job, archive: EvalArchive) -> Taken:
    key, there = SampleKey(job.sample, job.epoch), archive.sample_keys()
    if there != [key]:
        shown = ", ".join(map(str, there[:3])) or "no sample"
        raise _NotAccepted(f"its log holds {shown}, not {key}")
    rows = [row for row in archive.summaries() if SampleKey.of(row) == key]
    return Taken(archive, key, rows[0] if rows else sample_summary(archive.sample(key)))


def _opened(key: str, found: Object) -> EvalArchive:
    return EvalArchive.open(BytesSource(found.body, key))


def _ahead(loop: asyncio.AbstractEventLoop, calls: Iterable[Coroutine[Any, Any, T]]) -> Generator[T]:
    """What coroutines return, in their order, a few of them running while one is waited for."""
    waiting: deque[Future[T]] = deque()
    try:
        for call in calls:
            waiting.append(asyncio.run_coroutine_threadsafe(call, loop))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
