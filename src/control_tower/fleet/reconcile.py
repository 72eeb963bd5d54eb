"""What a fleet's controller does next: facts and time go in, actions come out; nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from control_tower.fleet.documents import Ending, Mode, Reopen, SealEntry
from control_tower.fleet.events import Told
from control_tower.fleet.facts import (
    Action,
    Changed,
    Decided,
    Emit,
    End,
    Ended,
    Event,
    Exit,
    Heard,
    Interrupted,
    LeaseChanged,
    Listed,
    Look,
    Polled,
    Read,
    ReadEnding,
    Reopening,
    Retry,
    Sealed,
    SetControl,
    Started,
    Swept,
    Tick,
    WriteReopening,
    WriteSeal,
)
from control_tower.fleet.guards import Breaker, Money, Throttle
from control_tower.fleet.jobs import Job, Jobs
from control_tower.fleet.machines import Machines, Size
from control_tower.fleet.messages import AttemptDone, BootFailed, Bye, Heartbeat, Hello, Notice, SampleDone
from control_tower.fleet.outcomes import Category, Limits

_DEAF = 30.0
"""Seconds after which a queue that does not answer, or is never empty, means that not all is heard."""

_LONGEST_TICK = 5.0
"""Seconds that may pass between two ticks; more means that this machine slept."""

_END_AGAIN = 10.0
"""Seconds after which machines that still live are ended once more."""

_SPENT, _HARD_SPENT = "the budget is spent", "the hard budget is spent"

_STOP = 20.0
"""Seconds that what is cancelled has to say how far it came."""


@dataclass(frozen=True)
class Policy:
    """What the user wants of a fleet."""

    limits: Limits = field(default_factory=Limits)
    size: Size = field(default_factory=Size)
    budget: float | None = None
    """USD after which nothing new begins."""
    hard_budget: float | None = None
    """USD after which what runs is ended."""
    pause_ends_after: float | None = None
    """Seconds after which a pause that nobody ends becomes the end; None waits."""


class State:
    """All that the controller of one fleet knows. `decide` alone changes it."""

    def __init__(
        self,
        fleet: str,
        jobs: Iterable[str],
        policy: Policy,
        told: Told | None = None,
        *,
        launches: int = 0,
        paused: str | None = None,
        seal: int = 0,
        reopened: Mapping[str, Reopen] | None = None,
    ) -> None:
        """Begins with nothing known of the store, so nothing is offered before it was looked at.

        Args:
            fleet: Its id.
            jobs: Their ids, longest first.
            policy: What the user wants.
            told: What the log of events says already.
            launches: Number of the last launch that a controller of this fleet asked for.
            paused: Why a controller before this one paused the fleet.
            seal: Number of the last seal.
            reopened: Jobs that are tried anew since; without any, what is sealed is over.
        """
        self.fleet = fleet
        self.policy = policy
        self.jobs = Jobs(jobs, policy.limits, deepcopy(told) if told else Told(), reopened)
        self.machines = Machines(policy.size, launches)
        self.breaker = Breaker()
        self.throttle = Throttle()
        self.money = Money(policy.budget, policy.hard_budget)
        self.halted = False
        """Whether what ran was ended because of the hard budget."""
        self.unjudged = self.money.limit is not None
        """Whether it was not looked yet whether there is money for what begins or was changed."""
        self.raised = False
        """Whether the user set a budget since."""
        self.mode: Mode = "pause" if paused else "run"
        self.why = paused or ""
        self.swept = False
        self.lease = False
        self.began: float | None = None
        self.paused_at: float | None = None
        self.stopped_at: float | None = None
        self.seal = seal
        self.sealing = self.sealed = self.jobs.sealed = seal > 0 and not reopened
        self.retries: list[Retry] = []
        """What the user wants to be tried anew, and what was not looked up yet."""
        self.reopening = False
        """Whether the first of them is being looked up."""
        self.summed = self.left = False
        self.control: SetControl | None = None
        self.ended_at: float | None = None
        self.observed = 0.0
        """Seconds during which all messages were heard soon. Absence counts by these alone: who could not
        listen, or had too much to hear, has missed nothing."""
        self.polled: float | None = None
        self.ticked: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to be decided or told."""
        return not self.jobs.open and not self.jobs.unsettled

    @property
    def goes_on(self) -> bool:
        """Whether more may begin, now or after a pause."""
        return not (self.over or self.summed)

    @property
    def running_usd(self) -> float:
        """What attempts have cost of which nothing more is known yet."""
        holds = [hold for held in self.money.running.values() for hold in held.items()]
        return sum(usd for (job, attempt), usd in holds if not self.jobs.is_paid(job, attempt))

    @property
    def spent_usd(self) -> float:
        """What the tokens of all attempts and the machines have cost so far."""
        return self.jobs.tokens + self.machines.cost(self.observed) + self.running_usd


def decide(state: State, event: Event, now: float) -> list[Action]:
    """Takes note of one fact, and says what is to be done.

    Args:
        state: What is known; changed in place, so a copy answers what would be done.
        event: The fact.
        now: Seconds on the controller's own clock, never going back.
    """
    if state.left:
        return []
    if state.began is None:
        state.began = now
    if isinstance(event, Tick):
        _listen(state, now)
    _note(state, event, now)
    if isinstance(event, Tick):
        _pass_time(state, now)
    if state.swept and state.lease:
        if state.mode == "run" and not state.unjudged:
            state.jobs.offers(state.observed)
        _reopen(state)
        _finish(state, now)
    actions = state.jobs.out + state.machines.out
    state.jobs.out, state.machines.out = [], []
    return [*actions, *_control(state)]


def _listen(state: State, now: float) -> None:
    if state.ticked is not None and state.polled is not None and now - state.polled <= _DEAF:
        state.observed += min(now - state.ticked, _LONGEST_TICK)
    state.ticked = now


def _note(state: State, event: Event, now: float) -> None:
    jobs, machines, observed = state.jobs, state.machines, state.observed
    match event:
        case Decided():
            _decided(state, event)
        case Ended(ending):
            jobs.ended(ending, observed)
        case Read(job, attempt, samples):
            jobs.settle(job, attempt, samples)
        case Swept():
            _sweep(state, event)
        case Heard():
            _hear(state, event)
        case Listed(instances):
            for worker in machines.listed(instances, observed):
                lost = jobs.held_by(worker.id, worker.jobs)
                fields = {"instance_id": worker.id, "market": worker.market, "held": len(lost)}
                if not state.summed and (lost or not worker.leaving):
                    jobs.out.append(Emit("worker_lost", fields))
                jobs.gone(lost, observed)
        case Started():
            machines.started(event, observed)
        case Polled():
            state.polled = now
        case LeaseChanged(held):
            state.lease = held
            state.control = None
            if held:
                jobs.watch_anew(observed)
        case Interrupted(times):
            _interrupt(state, times, now)
        case Changed():
            _change(state, event)
        case Retry():
            state.retries.append(event)
        case Reopening():
            _reopened(state, event)
        case Sealed(number):
            state.seal = number
            state.sealed = jobs.sealed = True
        case Tick():
            jobs.pass_time(observed)
    for job, attempt, category, ending in jobs.ended_now:
        _account(state, job, attempt, category, ending, now)
    jobs.ended_now.clear()


def _sweep(state: State, swept: Swept) -> None:
    jobs, first = state.jobs, not state.swept
    if first:
        state.swept = True
        fields = {"fleet_id": state.fleet, "expected": len(jobs.by_id), "workers": state.machines.goal}
        resumed = bool(swept.claims or swept.verdicts)
        if swept.visible and resumed:
            # The controller before this one made the first offers.
            jobs.trust_offers(state.observed)
        jobs.out.append(Emit("fleet_start", fields | {"resumed": resumed, "budget_usd": state.money.limit}))
    for job, attempt in swept.claims:
        jobs.claimed(job, attempt, None, state.observed)
    for ending in sorted(swept.endings, key=lambda one: one.n):
        jobs.ended(ending, state.observed)
    for verdict in swept.verdicts:
        _decided(state, verdict)
    jobs.offer_again(swept.visible, swept.visible_safe, state.observed)
    if first:
        # What failed before this controller began was judged then.
        jobs.ended_now.clear()
        state.breaker = Breaker()


def _decided(state: State, verdict: Decided) -> None:
    if state.jobs.decided(verdict) and verdict.status == "completed":
        state.breaker.ended(verdict.attempt, verdict.worker, None, configuration=False)


def _hear(state: State, heard: Heard) -> None:
    jobs, machines, message = state.jobs, state.machines, heard.message
    match message:
        case Hello():
            machines.hello(message, state.observed)
        case Heartbeat():
            if machines.heartbeat(message, state.observed):
                jobs.held(message.holds, message.worker, state.observed)
                holds = {(hold.job, hold.n): hold.usd for hold in message.holds if hold.usd}
                # What ended, and of which nobody has told yet what it cost.
                before = state.money.running.get(message.worker, {}).items()
                left = {one: usd for one, usd in before if not jobs.is_paid(*one)}
                state.money.running[message.worker] = {**left, **holds}
        case SampleDone():
            jobs.sample(message)
        case AttemptDone():
            jobs.done(message)
            if message.job in jobs.by_id:
                stored = message.outcome in ("failed", "preempted", "cancelled", "completed_late")
                jobs.out.append(ReadEnding(message.job, message.n) if stored else Look(message.job))
        case Notice(worker=id, kind=kind):
            if kind in ("spot", "drain", "disk") and (worker := machines.workers.get(id)):
                worker.leaving = True
            if kind == "bad_offer":
                jobs.out.append(Emit("alarm", {"text": f"{id} was given an offer that it cannot read"}))
        case Bye(worker=id):
            if worker := machines.workers.get(id):
                worker.leaving = worker.left = True
        case BootFailed():
            machines.boot_failed(message, state.observed)


def _account(
    state: State, job: Job, attempt: int, category: Category, ending: Ending | None, now: float
) -> None:
    """What the end of an attempt means for the whole fleet."""
    if ending is None:
        return
    if ending.outcome == "failed":
        cause = f"{category} {ending.fingerprint or ending.error_summary or ''}".strip()
        configuration = category == "prerequisite"
        state.breaker.ended(attempt, ending.worker, cause, configuration=configuration)
    if category == "quota":
        _pause(state, f"a model's service says that the account is exhausted: {ending.error_summary}", now)


def _pass_time(state: State, now: float) -> None:
    machines, jobs = state.machines, state.jobs
    machines.late(state.observed)
    if state.swept and state.goes_on:
        _judge(state, now)
    if state.mode == "run" and not state.over:
        workers = machines.ready()
        if why := state.breaker.tripped(max(1, workers)):
            _pause(state, why, now)
        elif _over_budget(state):
            _tell_spent(state, now)
        elif machines.stuck:
            _pause(state, f"machines do not get past {machines.stuck!r}", now)
        else:
            live = machines.live()
            slots = sum(one.slots for one in live)
            refusals = sum(one.backoff for one in live)
            state.throttle.adjust(refusals, len(jobs.running), workers, slots, now)
            if state.lease and state.swept:
                machines.shrink()
                machines.resize(jobs.open - len(jobs.delayed), bool(jobs.cautious), state.observed)
    if state.mode == "pause" and state.paused_at is None:
        # Whoever led before paused it.
        state.paused_at = now
    limit = state.policy.pause_ends_after
    if state.mode == "pause" and limit is not None and now - (state.paused_at or now) >= limit:
        state.mode = "drain"


def _judge(state: State, now: float) -> None:
    """Ends what runs where the hard budget is spent, and goes on where there is more money than before."""
    state.halted = state.halted and not state.unjudged
    raised, state.unjudged, state.raised = state.raised, False, False
    hard = state.money.hard
    if not state.halted and hard is not None and state.spent_usd >= hard:
        state.halted = True
        _tell_spent(state, now)
    elif raised and state.mode == "pause" and state.why in (_SPENT, _HARD_SPENT):
        if _over_budget(state):
            state.why = _why_spent(state)
        else:
            _go_on(state, "there is more money")


def _tell_spent(state: State, now: float) -> None:
    money, why = state.money, _why_spent(state)
    budget = money.hard if state.halted else money.limit
    fields = {"spent_usd": state.spent_usd, "budget_usd": budget, "hard": state.halted}
    state.jobs.out.append(Emit("budget", fields))
    _pause(state, why, now)
    if state.why in (_SPENT, _HARD_SPENT):
        state.why = why


def _why_spent(state: State) -> str:
    """Which of the budgets must be raised."""
    return _HARD_SPENT if state.halted or state.money.limit == state.money.hard else _SPENT


def _over_budget(state: State) -> bool:
    limit, jobs = state.money.limit, state.jobs
    if limit is None:
        return False
    mean = jobs.tokens / jobs.priced if jobs.priced else 0.0
    return state.spent_usd + max(0.0, mean * len(jobs.running) - state.running_usd) >= limit


def _pause(state: State, why: str, now: float) -> None:
    if state.mode == "run":
        state.mode, state.why, state.paused_at = "pause", why, now
        state.jobs.out.append(Emit("pause", {"why": why, "causes": state.breaker.causes.most_common(3)}))


def _interrupt(state: State, times: int, now: float) -> None:
    if times >= 3:
        state.left = True
        state.jobs.out.append(Exit(130))
    elif times == 2:
        state.mode, state.why, state.stopped_at = "stop", "interrupted", now
    elif state.mode != "stop":
        state.mode, state.why = "drain", "interrupted"


def _change(state: State, change: Changed) -> None:
    money = state.money
    money.budget = money.budget if change.budget is None else change.budget
    money.hard = money.hard if change.hard_budget is None else change.hard_budget
    if change.max_workers is not None:
        state.machines.limit(change.max_workers)
    if change.mode == "run" and state.mode == "pause":
        _go_on(state, "asked for")
    state.raised = state.raised or any((change.budget, change.hard_budget))
    state.unjudged = state.unjudged or state.raised or change.mode is not None


def _go_on(state: State, why: str) -> None:
    state.mode, state.why, state.paused_at = "run", "", None
    state.breaker, state.machines.stuck = Breaker(), None
    state.jobs.out.append(Emit("resume", {"why": why}))


def _reopen(state: State) -> None:
    """Has looked up what the user wants to be tried anew; not while a seal is being written."""
    if state.retries and not state.reopening and state.sealing == state.sealed:
        state.reopening = True
        retry, jobs = state.retries[0], state.jobs
        completed = [id for id, job in jobs.by_id.items() if job.verdict and id not in jobs.failed]
        unscored = {id: jobs.from_now(id, "completed") for id in completed if "unscored" in retry.what}
        jobs.out.append(WriteReopening(retry.number, state.seal, jobs.matching(retry.what), unscored))


def _reopened(state: State, reopening: Reopening) -> None:
    state.retries, state.reopening = state.retries[1:], False
    for id, one in reopening.jobs.items():
        state.jobs.reopen(id, one)
    if reopening.jobs:
        state.jobs.out.append(Emit("resume", {"why": f"{len(reopening.jobs)} jobs are tried anew"}))
    if state.sealed and reopening.jobs:
        state.sealing = state.sealed = state.jobs.sealed = state.summed = False
        state.mode, state.why, state.unjudged = "run", "", True


def _finish(state: State, now: float) -> None:
    """Seals a fleet whose jobs are all decided, then ends its machines, then leaves."""
    jobs, machines = state.jobs, state.machines
    if state.over and not state.sealed:
        if not state.sealing and not state.retries:
            state.sealing = True
            verdicts = [job.verdict for job in jobs.by_id.values() if job.verdict]
            entries = {
                one.job: SealEntry(etag=one.etag, attempt=one.attempt, status=one.status) for one in verdicts
            }
            jobs.out.append(WriteSeal(state.seal + 1, entries))
        return
    stopped = state.mode == "stop" and now - (state.stopped_at or now) >= _STOP
    drained = state.mode == "drain" and not jobs.running and not machines.may_hold(state.observed)
    # Of a fleet that was sealed before, some may not be told yet.
    told = state.sealed and state.over
    if not (told or stopped or drained or state.summed) or state.retries:
        return
    if not state.summed:
        state.summed = True
        jobs.out.append(Emit("fleet_summary", _summary(state, now)))
        state.mode, state.stopped_at = "stop", now
        machines.quiet_lists = 0
    if left := [worker.id for worker in machines.workers.values() if worker.gone is None]:
        if state.ended_at is None or now - state.ended_at >= _END_AGAIN:
            state.ended_at = now
            machines.out.append(End(left))
    elif machines.quiet_lists >= 2 and not machines.launching:
        state.left = True
        jobs.out.append(Exit((1 if jobs.failed else 0) if state.sealed else 130))


def _summary(state: State, now: float) -> dict[str, object]:
    jobs = state.jobs
    verdicts = [job.verdict for job in jobs.by_id.values() if job.verdict]
    accepted = sum(one.usd or 0.0 for one in verdicts)
    return {
        "completed": sum(one.status == "completed" for one in verdicts),
        "failed": sum(one.status == "failed" for one in verdicts),
        "total_expected": len(jobs.by_id),
        "elapsed_s": round(now - (state.began or now), 1),
        "repeated": sum(one.attempt > 1 for one in verdicts),
        "preempted": sum("worker" in end for job in jobs.by_id.values() for end in (job.ends or {}).values()),
        "wasted_usd": round(jobs.tokens - accepted, 6),
        "cost": {"tokens": round(jobs.tokens, 6), "machines": round(state.machines.cost(state.observed), 6)},
        "unpriced": jobs.unpriced,
        "sealed": state.sealed,
    }


def _control(state: State) -> list[Action]:
    """What workers are told, when it is news."""
    if not state.lease or state.left or (state.unjudged and state.goes_on):
        return []
    capped = state.throttle.cap is not None
    cap = state.throttle.per_worker(state.machines.ready()) if capped else None
    machines = state.machines
    wanted = SetControl(
        state.mode,
        state.why,
        cap,
        machines.launches,
        state.money.limit is not None,
        machines.surplus,
        state.halted,
    )
    if wanted == state.control:
        return []
    state.control = wanted
    return [wanted]
