"""Rules of the protocol, each broken on purpose: a simulator that misses one of them proves nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from control_tower.fleet import controller, jobs, reconcile, worker
from control_tower.fleet.controller import Controller
from control_tower.fleet.documents import Claim
from control_tower.fleet.events import EventLog, Told
from control_tower.fleet.facts import Decided, Heard, Swept
from control_tower.fleet.hands import Hands
from control_tower.fleet.jobs import Jobs
from control_tower.fleet.messages import AttemptDone, Offer
from control_tower.fleet.ports import Delivery, Queue, Unreachable
from control_tower.fleet.reconcile import State
from control_tower.fleet.standing import Standing
from control_tower.fleet.verdicts import verdict_meta
from control_tower.fleet.worker import Finish, Worker

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
"""Each breaks one rule while it is entered."""


def mutant(make: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Adds one."""
    MUTANTS[make.__name__] = contextmanager(make)
    return make


@mutant
def verdict_without_condition() -> Iterator[None]:
    async def commit(self: Worker, offer: Offer, finish: Finish) -> None:
        out = self._outside
        key, log = out.keys.verdict(offer.j), finish.log
        assert log is not None
        meta = verdict_meta("completed", offer.n, self.place.worker, out.nonce(), finish.usd, log)
        if not await out.surely(lambda: out.store.create(key, log, meta)):
            head = await out.surely(lambda: out.store.head(key))
            assert head
            await out.surely(lambda: out.store.replace(key, log, meta, etag=head.etag))
        self._done(offer, finish, "completed")

    with patch.object(Worker, "_commit", commit):
        yield


@mutant
def run_without_claim() -> Iterator[None]:
    async def claim(self: Worker, offer: Offer) -> bool:
        out = self._outside
        body = Claim(worker=self.place.worker, boot=self.boot, nonce=out.nonce()).text().encode()
        await out.surely(lambda: out.store.create(out.keys.claim(offer.j, offer.n), body))
        return True

    with patch.object(Worker, "_claim", claim):
        yield


@mutant
def lost_attempts_stay_lost() -> Iterator[None]:
    with patch.object(Jobs, "_lose", lambda *_: None):
        yield


@mutant
def silence_means_nothing() -> Iterator[None]:
    """Only machines that the provider calls gone lose their attempts."""
    with patch.object(jobs, "TTL", 1e9):
        yield


@mutant
def messages_are_believed() -> Iterator[None]:
    hear = reconcile._hear

    def believe(state: State, heard: Heard) -> None:
        message = heard.message
        if isinstance(message, AttemptDone) and message.outcome == "completed":
            state.jobs.decided(Decided(message.job, "completed", message.n, message.worker, "?"))
        hear(state, heard)

    with patch.object(reconcile, "_hear", believe):
        yield


async def _ack_first(self: Worker, queue: Queue, delivery: Delivery) -> None:
    self._taking += 1
    await self._ack(queue, delivery)
    self._taking -= 1
    await _SERVE(self, queue, delivery)


_SERVE = Worker._serve


@mutant
def ack_before_claim() -> Iterator[None]:
    with patch.object(Worker, "_serve", _ack_first):
        yield


@mutant
def ack_before_claim_and_no_second_offer() -> Iterator[None]:
    with patch.object(Worker, "_serve", _ack_first), patch.object(Jobs, "offer_again", lambda *_: None):
        yield


@mutant
def no_second_offer() -> Iterator[None]:
    with patch.object(Jobs, "offer_again", lambda *_: None):
        yield


@mutant
def claim_without_reading_back() -> Iterator[None]:
    async def claim(self: Worker, offer: Offer) -> bool | None:
        out = self._outside
        body = Claim(worker=self.place.worker, boot=self.boot, nonce=out.nonce()).text().encode()
        try:
            key = out.keys.claim(offer.j, offer.n)
            return await out.surely(lambda: out.store.create(key, body), 4) is not None
        except Unreachable:
            return None

    with patch.object(Worker, "_claim", claim):
        yield


@mutant
def commit_without_reading_back() -> Iterator[None]:
    async def commit(self: Worker, offer: Offer, finish: Finish) -> None:
        out, log = self._outside, finish.log
        assert log is not None
        meta = verdict_meta("completed", offer.n, self.place.worker, out.nonce(), finish.usd, log)
        if await out.surely(lambda: out.store.create(out.keys.verdict(offer.j), log, meta)):
            self._done(offer, finish, "completed")
        else:
            await self._leave_behind(offer, finish, "superseded")

    with patch.object(Worker, "_commit", commit):
        yield


@mutant
def upload_given_up() -> Iterator[None]:
    async def once(self: Worker, offer: Offer, finish: Finish) -> None:
        out, log = self._outside, finish.log
        assert log is not None
        meta = verdict_meta("completed", offer.n, self.place.worker, out.nonce(), finish.usd, log)
        try:
            await out.store.create(out.keys.verdict(offer.j), log, meta)
        except Unreachable:
            return
        self._done(offer, finish, "completed")

    with patch.object(Worker, "_commit", once):
        yield


@mutant
def attempts_forgotten_on_restart() -> Iterator[None]:
    sweep = reconcile._sweep

    def forgetful(state: State, swept: Swept) -> None:
        sweep(state, swept if state.swept else Swept((), (), swept.verdicts, swept.visible))

    with patch.object(reconcile, "_sweep", forgetful):
        yield


@mutant
def liveness_counted_from_the_offer() -> Iterator[None]:
    pass_time = Jobs.pass_time

    def early(self: Jobs, now: float) -> None:
        for job in self.by_id.values():
            old = job.offered is not None and now - job.offered >= jobs.TTL
            if job.seen is not None and not job.verdict and old:
                self._lose(job, "worker_lost", now)
        pass_time(self, now)

    with patch.object(Jobs, "pass_time", early):
        yield


@mutant
def told_is_forgotten_on_restart() -> Iterator[None]:
    start = EventLog.__init__

    def forget(self: EventLog, *args: Any) -> None:
        start(self, *args)
        self.told = Told(events=self.told.events)

    with patch.object(EventLog, "__init__", forget):
        yield


@mutant
def failures_do_not_count() -> Iterator[None]:
    step = jobs.next_step

    def endless(history: Any, limits: Any, retry_after: float = 0.0) -> Any:
        return step(history[-1:], limits, retry_after)

    with patch.object(jobs, "next_step", endless):
        yield


@mutant
def decided_jobs_are_run_again() -> Iterator[None]:
    async def never(self: Worker, job: str, reopened: Any) -> bool:
        return False

    with patch.object(Worker, "_decided", never):
        yield


@mutant
def asked_counts_as_done_before_it_is() -> Iterator[None]:
    with patch.object(Controller, "_applied", lambda self: self._asked):
        yield


@mutant
def reopened_jobs_are_not_run() -> Iterator[None]:
    with patch.object(worker, "_is_old", lambda *_: False):
        yield


@mutant
def reopening_is_forgotten_on_restart() -> Iterator[None]:
    read = controller.read_standing

    async def forget(*args: Any) -> Standing:
        return replace(await read(*args), reopened={})

    with patch.object(controller, "read_standing", forget):
        yield


@mutant
def late_success_is_dropped() -> Iterator[None]:
    with patch.object(Jobs, "replace", lambda *_: None):
        yield


@mutant
def machines_are_left() -> Iterator[None]:
    async def leave(self: Hands, ids: Any) -> None:
        return None

    async def stay(self: Worker) -> None:
        await self._read_control()

    with patch.object(Hands, "_end", leave), patch.object(Worker, "_leaving", lambda _: False):
        yield
