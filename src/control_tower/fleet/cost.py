"""What a fleet cost, from its store alone: for results, for results of later attempts, for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from control_tower.fleet.documents import Ending
from control_tower.fleet.keys import Keys
from control_tower.fleet.plan import read_fleet
from control_tower.fleet.ports import Head, Object, Store
from control_tower.fleet.verdicts import read_verdict
from control_tower.fleet.wire import Unreadable
from control_tower.models.cost import Cost

H = TypeVar("H", bound=Head)

NO_SIDE_TASK = "none"

_WIDTH = 64
"""Objects that are read at once."""


@dataclass(frozen=True)
class Split:
    """An amount, by what came of it."""

    accepted: Cost = field(default_factory=Cost)
    """Results of first attempts."""
    repeated: Cost = field(default_factory=Cost)
    """Results of later attempts."""
    wasted: Cost = field(default_factory=Cost)
    """Attempts that are no result."""

    @property
    def total(self) -> Cost:
        """All of it."""
        return self.accepted + self.repeated + self.wasted

    def __add__(self, other: Split) -> Split:
        return Split(
            self.accepted + other.accepted, self.repeated + other.repeated, self.wasted + other.wasted
        )


@dataclass(frozen=True)
class FleetCost:
    """What a fleet cost."""

    tokens: Split
    machines: Cost
    """Nothing where machines have no price, as this one."""
    attempts: int
    """That were begun."""
    unpriced: int
    """Attempts that ended, and of whose tokens some have no price."""
    unaccounted: int
    """Attempts that left nothing, lost or still running: nobody knows yet what they spent."""
    by_job: Mapping[str, Split] = field(default_factory=dict[str, Split])
    by_policy: Mapping[str, Split] = field(default_factory=dict[str, Split])
    by_side_task: Mapping[str, Split] = field(default_factory=dict[str, Split])
    """Of jobs without a side task under `none`."""

    @property
    def accepted(self) -> Cost:
        """Results of first attempts."""
        return self.tokens.accepted

    @property
    def repeated(self) -> Cost:
        """Results of later attempts."""
        return self.tokens.repeated

    @property
    def wasted(self) -> Cost:
        """Attempts that are no result."""
        return self.tokens.wasted


async def fleet_cost(store: Store, fleet: str) -> FleetCost:
    """What a fleet cost so far.

    Raises:
        StateError: There is no such fleet.
        Unreachable: The store does not answer.
    """
    keys, plan = Keys(fleet), await read_fleet(store, fleet)
    splits: dict[tuple[str, int], Split] = {}
    verdicts = [entry.key for entry in await store.list(keys.verdicts) if keys.job_of(entry.key)]
    for key, head in await _each(store.head, verdicts):
        verdict = read_verdict(keys.job_of(key) or "", head)
        if verdict.status == "completed":
            cost = _cost(verdict.usd)
            split = Split(repeated=cost) if verdict.attempt > 1 else Split(accepted=cost)
            splits[verdict.job, verdict.attempt] = split
    endings = [entry.key for entry in await store.list(keys.attempts) if entry.key.endswith(".json")]
    for key, found in await _each(store.get, endings):
        if attempt := keys.attempt_of(key):
            splits.setdefault(attempt, Split(wasted=_cost(_spent(found))))
    claims = {attempt for entry in await store.list(keys.claims) if (attempt := keys.attempt_of(entry.key))}
    by_id = {job.id: job for job in plan.jobs}
    known = [(by_id[job], split) for (job, _), split in splits.items() if job in by_id]
    policies = _policies(plan.file.config)
    return FleetCost(
        tokens=sum((split for _, split in known), Split()),
        machines=Cost(),
        attempts=len(claims | splits.keys()),
        unpriced=sum(split.total.incomplete for _, split in known),
        unaccounted=len(claims - splits.keys()),
        by_job=_added((job.id, split) for job, split in known),
        by_policy=_added((policies[job.attack], split) for job, split in known),
        by_side_task=_added((job.side or NO_SIDE_TASK, split) for job, split in known),
    )


async def _each(read: Callable[[str], Awaitable[H | None]], keys: Sequence[str]) -> list[tuple[str, H]]:
    """The objects of these keys that are there, read a few at a time."""
    found: list[tuple[str, H]] = []
    for at in range(0, len(keys), _WIDTH):
        some = keys[at : at + _WIDTH]
        read_now = await asyncio.gather(*(read(key) for key in some))
        found += [(key, one) for key, one in zip(some, read_now, strict=True) if one is not None]
    return found


def _spent(account: Object) -> float | None:
    try:
        return Ending.read(account.body).usd
    except Unreadable:
        return None


def _cost(usd: float | None) -> Cost:
    return Cost(usd, incomplete=usd is None)


def _policies(config: Mapping[str, Any]) -> dict[bool, str]:
    """Who plays the samples without and with a side task."""

    honest, attack = (config.get(f"{stream}_policy") or config["policy"] for stream in ("honest", "attack"))
    return {False: honest["name"], True: attack["name"]}


def _added(parts: Iterable[tuple[str, Split]]) -> dict[str, Split]:
    sums: dict[str, Split] = {}
    for name, split in parts:
        sums[name] = sums.get(name, Split()) + split
    return sums
