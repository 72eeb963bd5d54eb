"""How a fleet is doing and what its controller would do next, from the store alone: nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from control_tower.errors import StateError, did_you_mean
from control_tower.fleet.documents import Claim
from control_tower.fleet.facts import (
    Action,
    Event,
    Give,
    LeaseChanged,
    Listed,
    Polled,
    Tick,
    WriteFailed,
)
from control_tower.fleet.keys import Keys
from control_tower.fleet.outside import Outside
from control_tower.fleet.plan import FleetFile, FleetPlan, Job
from control_tower.fleet.ports import Instance, Provider, Store
from control_tower.fleet.progress import Progress, progress
from control_tower.fleet.reconcile import State, decide
from control_tower.fleet.replay import read_events
from control_tower.fleet.standing import Standing, begin, read_standing
from control_tower.fleet.sweep import Sweeper
from control_tower.fleet.verdicts import read_verdict
from control_tower.fleet.wire import Unreadable

Life = Literal["running", "detached", "interrupted", "sealed"]
"""A controller lives; only workers do; nothing does and jobs are open; all is decided."""

_STEP, _HORIZON = 5.0, 3600.0
"""Seconds between two looks ahead, and how far they go."""


@dataclass(frozen=True)
class Seen:
    """A fleet as a controller would find it that began now."""

    plan: FleetPlan
    standing: Standing
    state: State
    """What that controller would know."""
    progress: Progress
    """By the store; of the workers it counts those whose machines live."""
    controller: str | None
    """Who is the controller now."""
    workers: Sequence[Instance]
    """Those that live."""
    holders: Mapping[str, str]
    """The worker of each job that runs."""
    offers: int
    """Offers that wait for a worker."""
    actions: Sequence[Action]
    """What it would do at once."""
    later: Sequence[tuple[float, Action]]
    """What time alone would let it do, and after how many seconds."""

    @cached_property
    def planned(self) -> Mapping[str, Job]:
        """Its jobs by id."""
        return {job.id: job for job in self.plan.jobs}

    @property
    def life(self) -> Life:
        """What of the fleet lives."""
        return _life(self.controller, len(self.workers), sealed=self.standing.sealed)


@dataclass(frozen=True)
class Brief:
    """A fleet in a list."""

    file: FleetFile
    completed: int
    failed: int
    controller: str | None
    """Who is the controller now."""
    workers: int
    """That live."""
    sealed: bool

    @property
    def life(self) -> Life:
        """What of the fleet lives."""
        return _life(self.controller, self.workers, sealed=self.sealed)


def fleet_named(text: str, known: Iterable[str]) -> str:
    """The one fleet whose id is, or begins with, this text.

    Args:
        text: As a user writes it.
        known: Ids of the fleets there are.

    Raises:
        StateError: There is none, or several begin so.
    """
    ids = list(known)
    if text in ids:
        return text
    found = [id for id in ids if text and id.startswith(text)]
    if len(found) > 1:
        raise StateError(f"several fleets begin with {text!r}: {', '.join(found)}")
    if not found:
        raise StateError(f"there is no fleet {text!r}{did_you_mean(text, ids)}; see ct fleet list")
    return found[0]


async def glance(file: FleetFile, store: Store, provider: Provider, controller: str | None) -> Brief:
    """Looks at a fleet for a list: at its verdicts and machines, not at attempts.

    Args:
        file: The fleet.
        store: Its store; only read.
        provider: Lists its machines.
        controller: Who is its controller now, None for nobody.

    Raises:
        Unreachable: The store or the provider does not answer.
    """
    keys = Keys(file.fleet)
    standing = await read_standing(store, keys, lambda _: None)
    statuses: Counter[str] = Counter()
    for one in await store.list(keys.verdicts):
        if (job := keys.job_of(one.key)) and (head := await store.head(one.key)):
            verdict = read_verdict(job, head)
            again = standing.reopened.get(job)
            statuses[verdict.status] += not (again and again.covers(verdict.attempt, verdict.status))
    living = [one for one in await provider.list(file.fleet) if not one.gone]
    completed, failed = statuses["completed"], statuses["failed"]
    return Brief(file, completed, failed, controller, len(living), standing.sealed)


async def look(
    plan: FleetPlan,
    outside: Outside,
    provider: Provider,
    events: Path,
    controller: str | None,
) -> Seen:
    """Looks at a fleet, and asks the decision core what it would do.

    Args:
        plan: The fleet.
        outside: Its store and queues; only read.
        provider: Lists its machines.
        events: Its log of events.
        controller: Who is its controller now, None for nobody.

    Raises:
        Unreachable: The store, a queue or the provider does not answer.
    """
    store, keys = outside.store, outside.keys
    standing = await read_standing(store, keys, lambda _: None)
    instances = await provider.list(keys.fleet)
    swept = await Sweeper(outside, lambda _: None).sweep()
    ids, policy = [job.id for job in plan.jobs], plan.file.settings.policy()
    state, first = begin(keys.fleet, ids, policy, read_events(events).told, standing)
    then: tuple[Event, ...] = (LeaseChanged(True), Polled(), swept, Listed(instances), Tick())
    actions = [action for event in (*first, *then) for action in decide(state, event, 0.0)]
    alive = [one for one in instances if not one.gone]
    spot = sum(one.market == "spot" for one in alive)
    return Seen(
        plan,
        standing,
        state,
        replace(progress(state), workers=len(alive), spot=spot),
        controller,
        alive,
        await _holders(outside, state),
        swept.visible + swept.visible_safe,
        actions,
        _later(deepcopy(state)),
    )


def _life(controller: str | None, workers: int, *, sealed: bool) -> Life:
    if controller:
        return "running"
    if sealed:
        return "sealed"
    return "detached" if workers else "interrupted"


async def _holders(outside: Outside, state: State) -> dict[str, str]:
    holders: dict[str, str] = {}
    for job in sorted(state.jobs.running):
        found = await outside.store.get(outside.keys.claim(job, state.jobs.by_id[job].attempt))
        try:
            holders[job] = Claim.read(found.body).worker if found else "nobody"
        except Unreadable:
            holders[job] = "nobody"
    return holders


def _later(state: State) -> list[tuple[float, Action]]:
    """The next that the core would do if nothing were heard of, attempt by attempt."""
    due: dict[tuple[str, int], tuple[float, Action]] = {}
    moving = state.jobs.running | state.jobs.delayed
    now = 0.0
    while moving and now < _HORIZON:
        now += _STEP
        for event in (Polled(), Tick()):
            for action in decide(state, event, now):
                if isinstance(action, Give | WriteFailed) and action.job in moving:
                    due[action.job, action.attempt] = (now, action)
                    moving.discard(action.job)
    return list(due.values())
