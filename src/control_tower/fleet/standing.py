"""What users and earlier controllers decided of a fleet, as the store keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from control_tower.fleet.documents import Asked, Control, Reopen, Reopened
from control_tower.fleet.events import Told
from control_tower.fleet.facts import Changed, Event, Retry
from control_tower.fleet.keys import Keys
from control_tower.fleet.ports import Store
from control_tower.fleet.reconcile import Policy, State
from control_tower.fleet.wire import M, Unreadable


@dataclass(frozen=True)
class Standing:
    """Where a controller begins."""

    control: Control | None = None
    """What workers were told last."""
    seal: int = 0
    """Number of the last seal."""
    reopened: Mapping[str, Reopen] = field(default_factory=dict[str, Reopen])
    """Jobs that are tried anew since."""
    applied: int = 0
    """Number of the last `Asked` that a controller applied."""
    asked: Mapping[int, Asked] = field(default_factory=dict[int, Asked])
    """All of them."""

    @property
    def sealed(self) -> bool:
        """Whether the outcome is frozen."""
        return self.seal > 0 and not self.reopened

    @property
    def launches(self) -> int:
        """Number of the last launch that a controller asked for."""
        return self.control.launches if self.control else 0

    @property
    def retries(self) -> Mapping[int, tuple[str, ...]]:
        """What users want to be tried anew and no controller has looked up, by number."""
        new = {number: one.retry for number, one in self.asked.items() if number > self.applied}
        return {number: retry for number, retry in new.items() if retry}

    @property
    def resumed(self) -> bool:
        """Whether somebody asked that the fleet go on, and no controller has heard it."""
        return any(one.kind == "resume" for one in self.new)

    @property
    def paused(self) -> str | None:
        """Why the fleet is paused, None when it is not, or somebody asked since that it go on."""
        control = self.control
        return control.why if control and control.mode == "pause" and not self.resumed else None

    @property
    def new(self) -> Sequence[Asked]:
        """What users asked that no controller has applied."""
        return [one for number, one in self.asked.items() if number > self.applied]


def begin(
    fleet: str, jobs: Iterable[str], policy: Policy, told: Told, standing: Standing
) -> tuple[State, tuple[Event, ...]]:
    """What a controller knows that begins now, and what it is to be told first.

    Args:
        fleet: Its id.
        jobs: Ids of all jobs, longest first.
        policy: What the user wants.
        told: What the log of events says already.
        standing: Where the fleet stands.
    """
    settled = _settled(one for number, one in standing.asked.items() if number <= standing.applied)
    budget = policy.budget if settled.budget is None else settled.budget
    hard_budget = policy.hard_budget if settled.hard_budget is None else settled.hard_budget
    state = State(
        fleet,
        jobs,
        replace(policy, budget=budget, hard_budget=hard_budget),
        told,
        launches=standing.launches,
        paused=standing.paused,
        seal=standing.seal,
        reopened=standing.reopened,
    )
    # Who asked an earlier controller to leave did not mean this one.
    retries = (Retry(number, retry) for number, retry in standing.retries.items())
    new = _settled(standing.new)
    workers = settled.max_workers if new.max_workers is None else new.max_workers
    mode = "run" if standing.resumed else None
    return state, (replace(new, mode=mode, max_workers=workers), *retries)


async def read_standing(store: Store, keys: Keys, alarm: Callable[[str], None]) -> Standing:
    """Reads it.

    Args:
        store: Of the fleet.
        keys: Of the fleet.
        alarm: Told of objects that cannot be read; they count as if they were not there.

    Raises:
        Unreachable: The store does not answer.
    """
    control = await _read(store, keys.control, Control, alarm)
    seal = max([keys.number_of(one.key) for one in await store.list(keys.seals)], default=0)
    reopened: dict[str, Reopen] = {}
    applied = control.asked if control else 0
    for number in await _numbers(store, keys.reopenings):
        if found := await _read(store, keys.reopening(number), Reopened, alarm):
            applied = max(applied, found.asked)
            if found.seal == seal:
                reopened |= found.jobs
    asked = await read_asked(store, keys, 0, alarm)
    return Standing(control, seal, reopened, applied, asked)


async def read_asked(store: Store, keys: Keys, after: int, alarm: Callable[[str], None]) -> dict[int, Asked]:
    """What users asked, in order, from the first after this number."""
    numbers = [number for number in await _numbers(store, keys.asked) if number > after]
    read = {number: await _read(store, keys.ask(number), Asked, alarm) for number in numbers}
    return {number: one for number, one in read.items() if one}


async def ask(store: Store, keys: Keys, asked: Asked) -> int:
    """Asks something of the fleet's controller, of this one or of the next.

    Returns:
        Its number: it was applied when `Control.asked` is no less.

    Raises:
        Unreachable: The store does not answer; it may have been asked all the same.
    """
    number, body = max(await _numbers(store, keys.asked), default=0) + 1, asked.text().encode()
    while await store.create(keys.ask(number), body) is None:
        number += 1
    return number


def _settled(asked: Iterable[Asked]) -> Changed:
    """The values that users set, of which the last count."""
    changed = Changed()
    for one in asked:
        changed = Changed(
            None,
            changed.budget if one.budget_usd is None else one.budget_usd,
            changed.hard_budget if one.budget_hard_usd is None else one.budget_hard_usd,
            changed.max_workers if one.workers is None else one.workers,
        )
    return changed


async def _numbers(store: Store, prefix: str) -> list[int]:
    return sorted(number for one in await store.list(prefix) if (number := Keys.number_of(one.key)))


async def _read(store: Store, key: str, kind: type[M], alarm: Callable[[str], None]) -> M | None:
    found = await store.get(key)
    try:
        return kind.read(found.body) if found else None
    except Unreadable as error:
        alarm(f"{key}: {error}")
        return None
