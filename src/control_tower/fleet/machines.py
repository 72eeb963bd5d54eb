"""The machines of a fleet: how many there should be, which are gone, which never became workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from control_tower.fleet.facts import Action, Emit, End, Start, Started
from control_tower.fleet.jobs import TTL
from control_tower.fleet.messages import BootFailed, Heartbeat, Hello
from control_tower.fleet.ports import Instance, Market

BOOT = 600.0
"""Seconds in which a machine must become a worker."""

SILENT = 75.0
"""Seconds without a sign of life after which a machine that is not listed is taken for gone."""

_GROW = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 600.0
_SAME_STEP = 3
"""Machines that fail at one step, none having become a worker meanwhile, after which no more are started."""


@dataclass(frozen=True)
class Size:
    """How large a fleet may be."""

    max_workers: int = 64
    initial_workers: int = 24
    slots: int = 10
    """Attempts a worker runs at once."""
    markets: tuple[Market, ...] = ("on-demand",)
    """In the order in which they are asked."""


@dataclass(slots=True)
class Worker:
    """A machine and the worker on it."""

    id: str
    market: Market
    known: float
    """Since when."""
    price: float | None = None
    """USD an hour."""
    heard: float | None = None
    """When the last sign of life came."""
    boot: str = ""
    seq: int = 0
    slots: int = 0
    jobs: set[str] = field(default_factory=set[str])
    """Those the newest heartbeat listed."""
    backoff: int = 0
    """Refusals of model services since the last heartbeat but one."""
    absent: int = 0
    """Lists in a row that did not show it."""
    leaving: bool = False
    left: bool = False
    """Whether it said that it holds nothing more and goes."""
    gone: float | None = None
    """When it was found gone."""
    ended: bool = False
    """Whether the provider says so; it never comes back."""


class Machines:
    """All machines of a fleet; what it wants done is added to `out`."""

    def __init__(self, size: Size, launches: int = 0) -> None:
        """Begins with none.

        Args:
            size: How many there may be.
            launches: Number of the last launch that another controller of this fleet asked for.
        """
        self.size = size
        self.launches = launches
        self.workers: dict[str, Worker] = {}
        self.launching: dict[int, tuple[int, Market]] = {}
        self.goal = min(size.initial_workers, size.max_workers)
        self.stuck: str | None = None
        """The step at which machines fail to become workers."""
        self.surplus: tuple[str, ...] = ()
        """Workers that are to take no more jobs, because there are too many."""
        self.quiet_lists = 0
        """Lists in a row on which nothing lived."""
        self.out: list[Action] = []
        self._grown = 0.0
        self._pauses: dict[Market, tuple[float, int]] = {}
        self._failed_steps: Counter[str] = Counter()

    def live(self) -> list[Worker]:
        """Machines that take jobs, or soon will."""
        return [one for one in self.workers.values() if one.gone is None and not one.leaving]

    def may_hold(self, now: float) -> bool:
        """Whether a worker may run what it has not told yet; not one that left or was silent for long."""
        return any(
            one.gone is None and not one.left and one.heard is not None and now - one.heard < TTL
            for one in self.workers.values()
        )

    def cost(self, now: float) -> float:
        """What they cost so far, USD."""
        return sum(
            (one.price or 0.0) * ((one.gone or now) - one.known) / 3600 for one in self.workers.values()
        )

    def ready(self) -> int:
        """How many workers were heard of and are not gone."""
        return sum(one.heard is not None for one in self.live())

    def hello(self, message: Hello, now: float) -> None:
        """A worker is ready."""
        worker = self._worker(message.worker, now)
        if worker.boot != message.boot:
            worker.boot, worker.seq = message.boot, 0
            fields = {"instance_id": worker.id, "bootstrap_s": message.bootstrap_s}
            more = {"market": worker.market, "zone": message.zone, "phases": message.phases}
            self.out.append(Emit("worker_online", fields | more))
        worker.heard, worker.slots = now, message.slots
        worker.gone = worker.gone if worker.ended else None
        self._failed_steps.clear()

    def heartbeat(self, message: Heartbeat, now: float) -> bool:
        """Whether a heartbeat is news: an older one than the last says nothing."""
        worker = self._worker(message.worker, now)
        if worker.boot == message.boot and message.seq <= worker.seq:
            return False
        worker.boot, worker.seq, worker.heard, worker.slots = message.boot, message.seq, now, message.slots
        worker.gone = worker.gone if worker.ended else None
        worker.backoff = message.backoff
        worker.jobs = {hold.job for hold in message.holds}
        return True

    def boot_failed(self, message: BootFailed, now: float) -> None:
        """A machine says that it will not become a worker."""
        worker = self._worker(message.worker, now)
        worker.leaving = True
        self._failed_steps[message.step] += 1
        fields = {"instance_id": worker.id, "step": message.step, "detail": message.detail}
        self.out += [Emit("boot_failed", fields), End([worker.id])]
        if self._failed_steps[message.step] >= _SAME_STEP:
            self.stuck = message.step

    def listed(self, instances: Sequence[Instance], now: float) -> list[Worker]:
        """Compares with what the provider lists; returns the machines that turn out to be gone."""
        shown = {one.id: one for one in instances}
        for one in instances:
            if one.id not in self.workers and not one.gone:
                self.workers[one.id] = Worker(one.id, one.market, now)
            if worker := self.workers.get(one.id):
                worker.market, worker.price = one.market, one.price
        lost: list[Worker] = []
        for worker in self.workers.values():
            one = shown.get(worker.id)
            worker.absent = 0 if one else worker.absent + 1
            silent = now - (worker.heard or worker.known) > SILENT
            worker.ended = worker.ended or bool(one and one.gone)
            if worker.gone is None and (one.gone if one else worker.absent >= 2 and silent):
                worker.gone = now
                lost.append(worker)
        alive = self.launching or any(one.gone is None for one in self.workers.values())
        self.quiet_lists = 0 if alive else self.quiet_lists + 1
        return lost

    def started(self, answer: Started, now: float) -> None:
        """What became of a launch."""
        if self.launching.pop(answer.number, None) is None:
            return
        for id in answer.ids:
            self.workers.setdefault(id, Worker(id, answer.market, now))
        if answer.missing:
            times = self._pauses.get(answer.market, (0.0, 0))[1]
            pause = min(_FIRST_PAUSE * 2**times, _LONGEST_PAUSE)
            self._pauses[answer.market] = (now + pause, times + 1)
        else:
            self._pauses.pop(answer.market, None)
        fields = {"instance_ids": list(answer.ids), "market": answer.market}
        self.out.append(Emit("launch", fields | {"missing": answer.missing, "reason": answer.reason}))

    def late(self, now: float) -> None:
        """Ends machines that did not become workers in time."""
        for worker in self.workers.values():
            waits = worker.heard is None and worker.gone is None and not worker.leaving
            if waits and now - worker.known > BOOT:
                worker.leaving = True
                self.out += [
                    Emit("boot_failed", {"instance_id": worker.id, "step": "silent", "detail": ""}),
                    End([worker.id]),
                ]

    def resize(self, jobs: int, safe: bool, now: float) -> None:
        """Starts machines where there are too few.

        Args:
            jobs: Those that run or could run now.
            safe: Whether some go only to machines that are not taken back.
            now: Seconds.
        """
        if self.stuck:
            return
        live = self.live()
        self._grow(live, now)
        pending = sum(count for count, _ in self.launching.values())
        want = min(self.size.max_workers, -(-jobs // self.size.slots), self.goal)
        missing = want - len(live) - pending
        steady = [one.market for one in live if one.market != "spot"]
        steady += [market for _, market in self.launching.values() if market != "spot"]
        if safe and not steady and "on-demand" in self.size.markets:
            self._start(max(1, min(missing, 1)), ("on-demand",), now)
            missing -= 1
        if missing > 0:
            self._start(missing, self.size.markets, now)

    def limit(self, workers: int) -> None:
        """There may be so many from now on; a fleet that was as large as it might be grows at once."""
        at_most = self.goal >= self.size.max_workers
        self.size = replace(self.size, max_workers=workers)
        self.goal = workers if at_most else min(self.goal, workers)

    def shrink(self) -> None:
        """Where there are too many, those leave that hold the least."""
        if len(self.workers) <= self.size.max_workers:
            return
        live = sorted(self.live(), key=lambda one: (-len(one.jobs), one.known, one.id))
        for worker in live[self.size.max_workers :]:
            worker.leaving = True
            self.surplus = tuple(sorted([*self.surplus, worker.id]))

    def _grow(self, live: list[Worker], now: float) -> None:
        """Twice as many, while all are busy and nothing refuses."""
        if self.goal >= self.size.max_workers or now - self._grown < _GROW or self.launching or not live:
            return
        busy = all(one.heard is not None and one.slots and len(one.jobs) >= one.slots for one in live)
        if busy and not any(one.backoff for one in live):
            self.goal = min(2 * self.goal, self.size.max_workers)
            self._grown = now

    def _start(self, count: int, markets: Sequence[Market], now: float) -> None:
        for market in markets:
            if self._pauses.get(market, (0.0, 0))[0] <= now:
                self.launches += 1
                self.launching[self.launches] = (count, market)
                self.out.append(Start(self.launches, count, market))
                return

    def _worker(self, id: str, now: float) -> Worker:
        return self.workers.setdefault(id, Worker(id, self.size.markets[0], now))
