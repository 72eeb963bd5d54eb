"""What a log of events says when it is read again, and how a lost one is made anew from the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from control_tower.fleet.controller import LogKind
from control_tower.fleet.events import Told
from control_tower.fleet.facts import Emit, Event, LeaseChanged, Read, ReadSamples, Sealed
from control_tower.fleet.outside import Outside
from control_tower.fleet.plan import FleetPlan
from control_tower.fleet.reconcile import State, decide
from control_tower.fleet.standing import read_standing
from control_tower.fleet.sweep import Sweeper


@dataclass
class Replayed:
    """The state of a fleet as its events tell it."""

    fleet: str | None = None
    expected: int | None = None
    """Jobs of the fleet, where it says how many."""
    told: Told = field(default_factory=Told)
    types: Counter[str] = field(default_factory=Counter[str])
    """How many events of each type."""
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The events that could be read."""
    paused: str | None = None
    """Why it is paused, None when it is not."""
    summary: dict[str, Any] | None = None
    """The last `fleet_summary`."""
    problems: list[str] = field(default_factory=list[str])
    """What is torn, missing, doubled or contradictory."""

    @property
    def statuses(self) -> Counter[str]:
        """How many jobs have a verdict of each status."""
        return Counter(status for status, _ in self.told.jobs.values())


@dataclass(frozen=True)
class Spent:
    """What tokens cost by a log of events, USD."""

    usd: float
    wasted: float
    """Of attempts that are not the verdict."""
    unpriced: int
    """Jobs and attempts of which something has no price; they are in neither sum."""


def replay(data: bytes) -> Replayed:
    """Folds a log of events.

    Args:
        data: The whole file, perhaps torn.
    """
    found = Replayed()
    whole = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            event: Any = json.loads(line)
            if (seq := event.get("seq")) is None or seq <= found.told.events:
                found.problems.append(f"line {number}: event {seq} after {found.told.events}")
                continue
            _add(found, event)
        except (ValueError, KeyError, AttributeError, TypeError):
            found.problems.append(f"line {number}: is no event")
    if whole < len(data):
        found.problems.append(f"the last line was never finished ({len(data) - whole} bytes)")
    found.problems += _contradictions(found)
    return found


def read_events(path: Path) -> Replayed:
    """Folds the log of events in a file; one that is not there says nothing."""
    return replay(path.read_bytes() if path.is_file() else b"")


def _add(found: Replayed, event: dict[str, Any]) -> None:
    kind, seq, before = event["type"], event["seq"], found.told.events
    if kind == "job_done" and event["job_id"] in found.told.jobs:
        found.problems.append(f"event {seq}: job_done of {event['job_id']} a second time")
    found.told.add(event)
    if seq > before + 1:
        missing = f"event {before + 1} is" if seq == before + 2 else f"events {before + 1} to {seq - 1} are"
        found.problems.append(f"{missing} missing")
    found.types[kind] += 1
    found.lines.append(event)
    if kind == "fleet_start":
        found.fleet, found.expected = event.get("fleet_id"), event.get("expected")
    elif kind == "pause":
        found.paused = str(event.get("why"))
    elif kind == "resume":
        found.paused = None
    elif kind == "fleet_summary":
        found.summary = event


def _contradictions(found: Replayed) -> list[str]:
    problems: list[str] = []
    results = {job for job, _, _ in found.told.results}
    for job, (status, _) in found.told.jobs.items():
        if status == "completed" and job not in results:
            problems.append(f"job {job} completed without a result")
    if found.summary:
        for name in ("completed", "failed"):
            if (said := found.summary.get(name)) != (told := found.statuses[name]):
                problems.append(f"the summary says {name}={said}, the events before it {told}")
    return problems


def spent(found: Replayed) -> Spent:
    """What the tokens of a fleet cost, by its events."""
    jobs: dict[str, Any] = {}
    attempts: dict[tuple[str, int], Any] = {}
    for event in found.lines:
        if event["type"] == "attempt_done":
            attempts[event["job_id"], event["attempt"]] = event.get("usd")
        elif event["type"] == "job_done" or (event["type"] == "correction" and "sample" not in event):
            jobs[event["job_id"]] = event.get("usd")
    # A job's sum includes its attempts.
    undecided = [usd for (job, _), usd in attempts.items() if job not in jobs]
    wasted = [usd for (job, n), usd in attempts.items() if n != found.told.jobs.get(job, ("", 0))[1]]
    every = [*jobs.values(), *undecided]
    return Spent(sum(usd or 0.0 for usd in every), sum(usd or 0.0 for usd in wasted), every.count(None))


async def rebuilt(plan: FleetPlan, outside: Outside, logs: LogKind) -> list[Emit]:
    """The events of jobs, attempts and samples as the store knows them, for a log that was lost.

    Machines, pauses and times were only in the log.

    Args:
        plan: The fleet.
        outside: Its store and queues; only read.
        logs: Knows how logs are read.

    Raises:
        Unreachable: The store or a queue does not answer.
    """
    ids = [job.id for job in plan.jobs]
    standing = await read_standing(outside.store, outside.keys, lambda _: None)
    state = State(plan.file.fleet, ids, plan.file.settings.policy(), reopened=standing.reopened)
    facts: list[Event] = [LeaseChanged(True), await Sweeper(outside, lambda _: None).sweep()]
    events = [Emit("log_repaired", {"rebuilt": True})]
    while facts:
        for action in decide(state, facts.pop(0), 0.0):
            if isinstance(action, Emit):
                events.append(action)
            elif isinstance(action, ReadSamples):
                found = await outside.store.get(outside.keys.verdict(action.job))
                samples = logs.samples(found.body) if found else ()
                facts.append(Read(action.job, action.attempt, samples))
        if not facts and standing.sealed and state.over and not state.sealed:
            facts.append(Sealed(standing.seal))
    return [Emit(one.kind, {**one.fields, **_unknown(one)}) for one in events]


def _unknown(event: Emit) -> Mapping[str, Any]:
    """What the store does not know of an event."""
    return cast("dict[str, Any]", {"elapsed_s": None}) if event.kind == "fleet_summary" else {}
