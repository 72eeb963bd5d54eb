"""What became of each attempt of one job: from the store, with times from the log of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from control_tower.errors import StateError, did_you_mean
from control_tower.fleet.documents import Claim, Ending
from control_tower.fleet.outside import Outside
from control_tower.fleet.plan import Job
from control_tower.fleet.status import Seen
from control_tower.fleet.sweep import Sweeper
from control_tower.fleet.wire import Unreadable

_ENDS = ("attempt_done", "job_done")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a job."""

    number: int
    worker: str | None
    """Who ran it; None where nobody is known."""
    outcome: str
    """As in the documents; else `running` or `lost`."""
    verdict: bool
    """Whether the job's verdict is of this attempt."""
    category: str | None = None
    summary: str | None = None
    ended: str | None = None
    """ISO time at which the controller wrote of its end, where the events say it."""
    duration_s: float | None = None
    usd: float | None = None
    """None when something has no price, or it was lost."""
    log: str | None = None
    """Key of its log in the store."""
    output: str | None = None
    """Key of the end of what its process wrote."""


def job_named(text: str, jobs: Sequence[Job]) -> Job:
    """The one job whose id is, or begins with, this text, or whose sample has this id.

    Args:
        text: As a user writes it.
        jobs: Those of the fleet.

    Raises:
        StateError: There is none, or there are several.
    """
    found = [job for job in jobs if job.sample == text] or [job for job in jobs if job.id.startswith(text)]
    if not found or not text:
        known = [name for job in jobs for name in (job.sample, job.id)]
        raise StateError(f"the fleet has no job {text!r}{did_you_mean(text, known)}")
    if len(found) > 1:
        names = ", ".join(f"{job.id} ({job.sample}, epoch {job.epoch})" for job in found[:8])
        raise StateError(f"{text!r} is several jobs: {names}{', ...' if len(found) > 8 else ''}")
    return found[0]


async def attempts_of(
    seen: Seen, outside: Outside, job: str, events: Sequence[dict[str, Any]]
) -> list[Attempt]:
    """All attempts of a job, the first first.

    Args:
        seen: The fleet.
        outside: Its store, only read.
        job: The job's id.
        events: Those that are known of the fleet.

    Raises:
        Unreachable: The store does not answer.
    """
    keys = outside.keys
    listed = [await outside.store.list(f"{prefix}{job}.") for prefix in (keys.claims, keys.attempts)]
    kept = {one.key for some in listed for one in some}
    told = {one["attempt"]: one for one in events if one.get("job_id") == job and one["type"] in _ENDS}
    verdict = seen.state.jobs.by_id[job].verdict
    numbers = {found[1] for key in kept if (found := keys.attempt_of(key))} | told.keys()
    numbers |= {verdict.attempt} if verdict else set()
    return [
        await _attempt(seen, outside, job, number, kept, told.get(number, {})) for number in sorted(numbers)
    ]


async def _attempt(
    seen: Seen, outside: Outside, job: str, number: int, kept: Set[str], told: Mapping[str, Any]
) -> Attempt:
    keys, verdict = outside.keys, seen.state.jobs.by_id[job].verdict
    accepted = verdict if verdict and verdict.attempt == number else None
    account, log, output = (make(job, number) for make in (keys.outcome, keys.log, keys.output))
    ending = await Sweeper(outside, lambda _: None).ending(account) if account in kept else None
    category = ending.category if ending else told.get("failure_category")
    return Attempt(
        number,
        ending.worker if ending else await _claimed_by(outside, job, number),
        _outcome(seen, job, number, ending),
        accepted is not None,
        accepted.category if accepted else category,
        ending.error_summary if ending else told.get("error_summary"),
        told.get("ts"),
        ending.duration_s if ending else told.get("duration_s"),
        accepted.usd if accepted else ending.usd if ending else None,
        keys.verdict(job) if accepted else log if log in kept else None,
        output if output in kept else None,
    )


def _outcome(seen: Seen, job: str, number: int, ending: Ending | None) -> str:
    known = seen.state.jobs.by_id[job]
    if ending:
        return ending.outcome
    if known.verdict and known.verdict.attempt == number:
        return known.verdict.status
    running = job in seen.state.jobs.running and number == known.attempt
    return "running" if running else "lost"


async def _claimed_by(outside: Outside, job: str, number: int) -> str | None:
    found = await outside.store.get(outside.keys.claim(job, number))
    try:
        return Claim.read(found.body).worker if found else None
    except Unreadable:
        return None
