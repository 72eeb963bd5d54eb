"""The jobs of a fleet: which attempt is due, who holds it, when it is lost, and what is told of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal, cast

from control_tower.fleet.documents import Ending, Reopen, SampleResult
from control_tower.fleet.events import Told
from control_tower.fleet.facts import Action, Decided, Emit, Give, Look, ReadSamples, Replace, WriteFailed
from control_tower.fleet.messages import AttemptDone, Hold, SampleDone
from control_tower.fleet.outcomes import RULES, Category, Fail, Limits, next_step
from control_tower.fleet.telling import attempt_event, job_event, result_event

TTL = 180.0
"""Seconds after which a claimed attempt is lost that no heartbeat listed."""

UNCLAIMED = 300.0
"""Seconds after which an offer that nobody claimed may be lost."""


_OFFERS = 4
"""Times that an attempt is offered again before there is an alarm."""

_EMPTY = 60.0
"""Seconds for which a queue must have been empty before offers are made again."""


@dataclass(slots=True)
class Job:
    """What is known of one job."""

    id: str
    attempt: int = 1
    """The newest that was seen, offered or is to be offered."""
    offered: float | None = None
    """When it was last offered."""
    seen: float | None = None
    """When it was last known to be held; None while it is unclaimed."""
    holder: str | None = None
    """The worker that holds it, where that is known."""
    safe: bool = False
    alone: bool = False
    avoid: str | None = None
    """The worker that the next attempt had better not run on."""
    offers: int = 0
    """How often this attempt was offered and nobody claimed it."""
    failing: bool = False
    """Whether the failed verdict is being written."""
    reopened: Reopen | None = None
    """Why a verdict from before is not the last word."""
    old: Decided | None = None
    """That verdict; it stands until another takes its place."""
    late: Ending | None = None
    """Of the attempt whose success came after the failed verdict."""
    verdict: Decided | None = None
    done: AttemptDone | Ending | None = None
    """The newest account of an attempt's end, with its samples."""
    ends: dict[int, Category] | None = None
    """How attempts ended that are not the verdict."""
    spent: dict[int, float | None] | None = None
    """USD of attempts."""

    def ended(self, attempt: int) -> bool:
        """Whether an attempt is over."""
        return self.ends is not None and attempt in self.ends


@dataclass(slots=True)
class Took:
    """How long attempts took, seconds."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    @property
    def spread(self) -> float:
        """Their standard deviation."""
        return (self._squares / self.count) ** 0.5 if self.count else 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        off = seconds - self.mean
        self.mean += off / self.count
        self._squares += off * (seconds - self.mean)


class Jobs:
    """All jobs of a fleet; what it wants done is added to `out`."""

    def __init__(
        self, ids: Iterable[str], limits: Limits, told: Told, reopened: Mapping[str, Reopen] | None = None
    ) -> None:
        self.by_id = {id: Job(id) for id in ids}
        self.limits = limits
        self.told = told
        self.out: list[Action] = []
        self.open = len(self.by_id)
        self.ready = dict.fromkeys(self.by_id)
        """Those whose attempt is to be offered now, in this order."""
        self.running: set[str] = set()
        self.delayed: set[str] = set()
        self.retrying: set[str] = set()
        """Those that wait for another attempt than the first."""
        self.failed: set[str] = set()
        """Those with a failed verdict."""
        self.took = Took()
        self.unsettled: set[str] = set()
        """Those with a verdict that was not told yet."""
        self.ended_now: list[tuple[Job, int, Category, Ending | None]] = []
        """Attempts whose end became known, for the guards."""
        self.cautious: set[str] = set()
        """Open jobs that go only to machines that are not taken back."""
        self.tokens = 0.0
        """USD of all attempts that ended and have a price."""
        self.priced = self.unpriced = 0
        """How many have one, and have none."""
        self.sealed = False
        self._timers: list[tuple[float, str, int]] = []
        self._empty_since: dict[bool, float] = {}
        for id, one in (reopened or {}).items():
            self.reopen(id, one)

    def matching(self, what: Collection[str]) -> dict[str, Reopen]:
        """Jobs that failed, all of them with `failed`, else those of these categories, to be tried anew."""
        verdicts = [verdict for id in self.failed if (verdict := self.by_id[id].verdict)]
        found = [one.job for one in verdicts if "failed" in what or one.category in what]
        return {id: self.from_now(id, "failed") for id in sorted(found)}

    def from_now(self, id: str, status: Literal["completed", "failed"]) -> Reopen:
        """That all verdicts on a job so far, of this status, are not the last word."""
        job = self.by_id[id]
        known = [job.attempt, *(job.ends or ()), job.verdict.attempt if job.verdict else 0]
        return Reopen(after=max(known), status=status)

    def reopen(self, id: str, reopened: Reopen) -> None:
        """A job is tried anew; what it came to before stands until then."""
        job = self.by_id.get(id)
        if not job or (job.reopened and job.reopened.after >= reopened.after):
            return
        job.reopened, job.safe, job.alone = reopened, False, False
        old = job.verdict is not None and reopened.covers(job.verdict.attempt, job.verdict.status)
        if old or job.attempt <= reopened.after:
            job.attempt = max(job.attempt, reopened.after) + 1
            self._rest(job)
            self.retrying.add(id)
            self.ready[id] = None
        if old:
            job.old, job.verdict = job.verdict, None
            self.open += 1
            self.failed.discard(id)
            self.unsettled.discard(id)

    def claimed(self, id: str, attempt: int, worker: str | None, now: float) -> None:
        """Somebody holds an attempt."""
        job = self.by_id.get(id)
        if not job or job.verdict or attempt < job.attempt or job.ended(attempt):
            return
        self._forward(job, attempt)
        if worker is None and job.seen is None and (why := self.told.lost.get((id, attempt))):
            # The controller before this one has lost it and said so.
            job.ends = {**(job.ends or {}), attempt: cast(Category, why)}
            self._step(job, now, 0.0)
            return
        self.ready.pop(id, None)
        self.delayed.discard(id)
        self.retrying.discard(id)
        self.running.add(id)
        if job.seen is None:
            heappush(self._timers, (now + TTL, id, attempt))
        if worker or job.seen is None:
            job.seen = now
        job.holder = worker or job.holder

    def watch_anew(self, now: float) -> None:
        """Another controller may have heard of what runs: absence counts from now on."""
        for id in self.running:
            self.by_id[id].seen = now

    def held(self, holds: Sequence[Hold], worker: str, now: float) -> None:
        """A heartbeat lists attempts."""
        for hold in holds:
            self.claimed(hold.job, hold.n, worker, now)

    def ended(self, ending: Ending, now: float) -> None:
        """An attempt ended and is not the verdict."""
        job = self.by_id.get(ending.job)
        if not job:
            return
        self._spend(job, ending.n, ending.usd)
        job.ends = job.ends or {}
        before = job.ends.get(ending.n)
        # An attempt that lost the race for the verdict counts neither as a failure nor as a loss.
        category = job.ends[ending.n] = ending.category or "cancelled"
        if job.done is None or ending.n >= job.done.n:
            job.done = ending
        if before != category and (job.id, ending.n) not in self.told.attempts:
            self._tell_attempt(job, ending.n, category, ending)
        if before is None:
            self.ended_now.append((job, ending.n, category, ending))
        if ending.outcome == "completed_late":
            job.late = ending
            self.replace(job)
        if not job.verdict:
            if ending.outcome in ("superseded", "completed_late"):
                self.out.append(Look(job.id))
            elif before is None and ending.n >= job.attempt:
                self._forward(job, ending.n)
                self._step(job, now, ending.retry_after_s or 0.0)
            elif before != category and ending.n > _before(job) and _waits(job):
                # An account of an earlier attempt came late: what was to follow is judged anew.
                job.attempt -= 1
                self._step(job, now, 0.0)

    def done(self, message: AttemptDone) -> None:
        """A worker says that an attempt ended; what the store says of it is looked up."""
        job = self.by_id.get(message.job)
        if not job or job.ended(message.n):
            return
        if message.outcome == "completed" and (job.done is None or message.n >= job.done.n):
            job.done = message

    def sample(self, message: SampleDone) -> None:
        """A sample ended; one without error is told at once."""
        if message.job in self.by_id and message.result.status == "success":
            self._tell_sample(message.job, message.n, message.worker, message.result, first_only=True)

    def decided(self, verdict: Decided) -> bool:
        """There is a verdict; whether that is news."""
        job = self.by_id.get(verdict.job)
        before = job.verdict if job else None
        if not job or (before and (before.etag == verdict.etag or before.status == "completed")):
            return False
        self._spend(job, verdict.attempt, verdict.usd)
        # An old result stands where all further attempts failed; an old failure is written anew.
        stands = job.failing and verdict.status == "completed"
        if job.reopened and job.reopened.covers(verdict.attempt, verdict.status) and not stands:
            job.old = verdict
            self.replace(job)
            return False
        if not before:
            self.open -= 1
        job.verdict = verdict
        (self.failed.add if verdict.status == "failed" else self.failed.discard)(job.id)
        self.retrying.discard(job.id)
        self.cautious.discard(job.id)
        self.ready.pop(job.id, None)
        self.delayed.discard(job.id)
        self.running.discard(job.id)
        self.replace(job)
        if self.told.jobs.get(job.id) == (verdict.status, verdict.attempt):
            self.unsettled.discard(job.id)
            return True
        self.unsettled.add(job.id)
        account = self._account(job)
        samples = account.samples if account else ()
        # A worker that says of a success that it has no samples is mistaken: its log tells.
        if samples or verdict.status == "failed":
            self.settle(job.id, verdict.attempt, samples)
        else:
            self.out.append(ReadSamples(job.id, verdict.attempt))
        return True

    def settle(self, id: str, attempt: int, samples: Sequence[SampleResult]) -> None:
        """What the samples of a verdict came to: told before the job is told as done."""
        job = self.by_id[id]
        verdict = job.verdict
        if id not in self.unsettled or not verdict or verdict.attempt != attempt:
            return
        self.unsettled.discard(id)
        for sample in samples:
            self._tell_sample(id, attempt, verdict.worker, sample, first_only=False)
        spent, attempts = list((job.spent or {}).values()), max(job.attempt, attempt)
        again, account = id in self.told.jobs, self._account(job)
        if account and account.duration_s:
            self.took.add(account.duration_s)
        self.out.append(job_event(verdict, account, attempts, spent, correction=again))
        self.told.jobs[id] = (verdict.status, attempt)

    def replace(self, job: Job) -> None:
        """A success that came after the failed verdict, or after one from before, takes its place."""
        there, late = job.verdict or job.old, job.late
        if not late or not there or self.sealed:
            return
        newer = there.status == "failed" or (not job.verdict and late.n > _before(job))
        if newer:
            self.out.append(Replace(job.id, late.n, late.worker, there.etag))

    def held_by(self, worker: str, jobs: Iterable[str]) -> list[str]:
        """Which of the jobs that a machine told of last it may still hold."""
        known = [job for id in sorted(jobs) if (job := self.by_id.get(id)) and not job.verdict]
        return [job.id for job in known if job.holder == worker and job.seen is not None]

    def gone(self, held: Iterable[str], now: float) -> None:
        """A machine ended: what it held is lost at once."""
        for id in held:
            self._lose(self.by_id[id], "worker_died", now)

    def pass_time(self, now: float) -> None:
        """What was not held for too long is lost; what waited long enough is ready."""
        while self._timers and self._timers[0][0] <= now:
            _, id, attempt = heappop(self._timers)
            job = self.by_id[id]
            if job.verdict or job.attempt != attempt:
                continue
            if id in self.delayed:
                self.delayed.discard(id)
                self.ready[id] = None
            elif job.seen is not None:
                if now - job.seen >= TTL:
                    self._lose(job, "worker_lost", now)
                else:
                    heappush(self._timers, (job.seen + TTL, id, attempt))

    def offer_again(self, visible: int, visible_safe: int, now: float) -> None:
        """Offers that nobody claimed, though none waits in their queue, may be lost: they are made again.

        Each queue counts for its own jobs: an old offer may wait in the other for a machine that never comes.
        """
        for safe, waiting in ((False, visible), (True, visible_safe)):
            since = self._empty_since.setdefault(safe, now)
            if waiting:
                del self._empty_since[safe]
            elif now - since >= _EMPTY:
                for job in self.by_id.values():
                    if self._lost(job, safe, now):
                        self.ready[job.id] = None
                        job.offers += 1
                        if job.offers == _OFFERS:
                            text = f"{job.id}: attempt {job.attempt} is offered in vain, nobody claims it"
                            self.out.append(Emit("alarm", {"text": text}))

    def _lost(self, job: Job, safe: bool, now: float) -> bool:
        unclaimed = not job.verdict and not job.failing and job.seen is None and job.id not in self.delayed
        old = job.offered is not None and now - job.offered > UNCLAIMED
        return unclaimed and old and job.safe == safe

    def trust_offers(self, now: float) -> None:
        """First attempts were offered before; what was lost of them shows when the queues are empty."""
        for id in list(self.ready):
            if self.by_id[id].attempt == 1:
                self.by_id[id].offered = now
                del self.ready[id]

    def offers(self, now: float) -> None:
        """Offers all that is ready."""
        for id in self.ready:
            job = self.by_id[id]
            job.offered = now
            self.out.append(Give(id, job.attempt, job.safe, job.alone, job.avoid, job.reopened))
        self.ready.clear()

    def _account(self, job: Job) -> AttemptDone | Ending | None:
        """What the worker of the verdict said of it."""
        done, verdict = job.done, job.verdict
        mine = done and verdict and (done.n, done.worker) == (verdict.attempt, verdict.worker)
        return done if mine else None

    def _forward(self, job: Job, attempt: int) -> None:
        """A newer attempt than the known one was seen."""
        if attempt > job.attempt:
            job.attempt = attempt
            self._rest(job)

    def _rest(self, job: Job) -> None:
        """Nothing is known of the job's newest attempt."""
        job.seen = job.holder = job.offered = job.avoid = None
        job.offers, job.failing = 0, False
        self.running.discard(job.id)
        self.delayed.discard(job.id)

    def _lose(self, job: Job, category: Category, now: float) -> None:
        job.ends = job.ends or {}
        job.ends[job.attempt] = category
        self.ended_now.append((job, job.attempt, category, None))
        self._tell_attempt(job, job.attempt, category, None)
        self._step(job, now, 0.0)

    def _step(self, job: Job, now: float, retry_after: float) -> None:
        """What follows after the newest attempt ended without a verdict."""
        ends, first = job.ends or {}, _before(job) + 1
        history: list[Category] = [ends.get(n, "worker_lost") for n in range(first, job.attempt + 1)]
        self.running.discard(job.id)
        self.ready.pop(job.id, None)
        step = next_step(history, self.limits, retry_after)
        if isinstance(step, Fail):
            if not job.failing:
                summary = job.done.error_summary if isinstance(job.done, Ending) else None
                failed = WriteFailed(job.id, job.attempt, step.category, summary, job.reopened)
                self.out.append(failed)
            job.failing = True
            job.seen = None
            return
        holder = job.done.worker if job.done and job.done.n == job.attempt else job.holder
        job.attempt += 1
        self._rest(job)
        self.retrying.add(job.id)
        job.safe, job.alone = step.safe, step.alone
        job.avoid = holder if RULES[history[-1]].elsewhere else None
        if job.safe:
            self.cautious.add(job.id)
        if step.delay:
            self.delayed.add(job.id)
            heappush(self._timers, (now + step.delay, job.id, job.attempt))
        else:
            self.ready[job.id] = None

    def is_paid(self, id: str, attempt: int) -> bool:
        """Whether it is known what an attempt cost in the end."""
        job = self.by_id.get(id)
        return job is not None and (job.spent or {}).get(attempt) is not None

    def _spend(self, job: Job, attempt: int, usd: float | None) -> None:
        job.spent = job.spent or {}
        if attempt not in job.spent:
            job.spent[attempt] = usd
            self.tokens += usd or 0.0
            self.unpriced += usd is None
            self.priced += usd is not None

    def _tell_attempt(self, job: Job, attempt: int, category: Category, ending: Ending | None) -> None:
        self.told.attempts.add((job.id, attempt))
        self.out.append(attempt_event(job.id, attempt, category, job.holder, ending))

    def _tell_sample(
        self, id: str, attempt: int, worker: str, result: SampleResult, *, first_only: bool
    ) -> None:
        key = (id, str(result.sample), result.epoch)
        told = self.told.results.get(key)
        if told == attempt or (told is not None and first_only):
            return
        self.told.results[key] = attempt
        self.out.append(result_event(id, attempt, worker, result, correction=told is not None))


def _before(job: Job) -> int:
    """The last attempt that does not count, because the job was reopened after it."""
    return job.reopened.after if job.reopened else 0


def _waits(job: Job) -> bool:
    """Whether its next attempt was not offered yet."""
    return job.seen is None and job.offered is None and not job.failing
