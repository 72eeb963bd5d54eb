"""A worker: claims attempts, runs them, stores what they came to, and only then says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from control_tower.fleet.documents import Claim, Control, Ending, Reopen, SampleResult
from control_tower.fleet.jobs import TTL
from control_tower.fleet.messages import (
    AttemptDone,
    Bye,
    Heartbeat,
    Hello,
    Hold,
    Message,
    Notice,
    Offer,
    SampleDone,
)
from control_tower.fleet.outcomes import Category, outcome_of
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Body, BodyLost, Delivery, Head, Market, Queue, Unreachable
from control_tower.fleet.verdicts import read_verdict, verdict_meta
from control_tower.fleet.wire import Unreadable

HEARTBEAT = 30.0
"""Seconds between two heartbeats, a fifth more or less."""

_WAIT = 20.0
_CLAIM_TRIES = 4
_LEAVE_BEFORE = 25.0
"""Seconds before a machine is taken back at which what runs is ended, so that it can still be stored."""

_LAST_WORDS = 100.0
"""Seconds in which a worker that leaves tries to say the rest; what is stored needs no saying."""

_FIRST_SLOTS = 10
"""Attempts that a worker runs at once before any ended well; each that does allows one more."""

_REFUSALS, _HALVE = 3, 60.0
"""Refusals of models' services between two heartbeats that halve this, at most once in so many seconds."""

_UNLED = 900.0
"""Seconds without a sign of the controller after which a fleet with a budget takes no more jobs."""


@dataclass(frozen=True)
class Finish:
    """How an attempt's process ended."""

    outcome: Literal["completed", "failed", "preempted", "cancelled"]
    log: Body | None
    category: Category | None = None
    error_summary: str | None = None
    fingerprint: str | None = None
    samples: tuple[SampleResult, ...] = ()
    usd: float | None = None
    duration_s: float = 0.0
    retry_after_s: float | None = None
    output: bytes | None = None
    """The end of what its process wrote, without secrets; kept where the attempt is not the verdict."""


class Runner(Protocol):
    """Runs attempts, each in a process of its own."""

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        """Runs an attempt to its end; whatever happens to it is in what is returned.

        Args:
            job: Its id.
            attempt: Its number.
            tell: Called as samples end.
        """
        ...

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        """Ends an attempt; `run` returns soon, with this category."""
        ...

    def forget(self, job: str, attempt: int) -> None:
        """What an attempt left was stored, and can be removed."""
        ...

    def spent(self, job: str, attempt: int) -> float | None:
        """USD that the tokens of an attempt cost so far; None where that is not known."""
        ...

    def backoff(self) -> int:
        """How often models' services refused since this was last asked."""
        ...


@dataclass(frozen=True)
class Place:
    """Who a worker is and what it may do."""

    worker: str
    market: Market
    slots: int
    idle_timeout: float = 120.0
    """Seconds without work after which it leaves."""
    look: float = 60.0
    """Seconds between two looks at what the controller wants; each heartbeat looks too."""
    bootstrap_s: float = 0.0
    """Seconds that the machine took to become a worker."""
    room: Callable[[], int] = lambda: sys.maxsize
    """For how many attempts more there is memory; a worker runs one in any case."""


@dataclass
class _Held:
    offer: Offer
    phase: Literal["waiting", "running", "storing"] = "waiting"


class Worker:
    """The protocol of one worker; several loops in one process."""

    def __init__(self, place: Place, outside: Outside, runner: Runner, jitter: Callable[[], float]) -> None:
        """Does nothing yet.

        Args:
            place: Who it is.
            outside: The fleet.
            runner: Runs attempts.
            jitter: Random numbers from 0 to 1.
        """
        self.place = place
        self.boot = outside.nonce()
        self.held: dict[tuple[str, int], _Held] = {}
        self._outside = outside
        self._runner = runner
        self._jitter = jitter
        self._bell = outside.clock.bell()
        self._beat = outside.clock.bell()
        self._control: Control | None = None
        self._control_etag = ""
        self._seq = 0
        self._spool: list[str] = []
        self._flushing = False
        self._taking = 0
        self._alone: tuple[str, int] | None = None
        self._declined: set[tuple[str, int]] = set()
        self._slots = min(place.slots, _FIRST_SLOTS)
        self._halved = -_HALVE
        self._noticed = False
        self._stopped: Category | None = None
        self._ended = False
        now = outside.clock.now()
        self._busy = self._accepted = self._led = now

    async def run(self) -> None:
        """Works until the fleet needs it no more, and everything it knows is stored and said."""
        await self._read_control()
        self._say(Hello, slots=self.place.slots, bootstrap_s=self.place.bootstrap_s)
        self._outside.spawn(self._live())
        while not self._leaving():
            if (free := self._free()) <= 0 or not self._listening():
                await self._bell.wait(HEARTBEAT)
            else:
                await self._take(free)
        while self.held or self._taking:
            await self._bell.wait(HEARTBEAT)
        self._say(Bye, reason="notice" if self._noticed else "idle")
        end = self._outside.clock.now() + _LAST_WORDS
        while self._spool and self._outside.clock.now() < end:
            await self._outside.clock.sleep(1.0)
            await self._flush()
        self._ended = True

    def notice(self, seconds: float) -> None:
        """The machine is taken back in so many seconds."""
        self._noticed = True
        self._say(Notice, kind="spot")
        self._outside.spawn(self._hand_back(seconds - _LEAVE_BEFORE))
        self._bell.ring()

    def leave(self, why: Literal["drain", "disk"] = "drain") -> None:
        """Takes nothing more; `run` returns when what is held has finished."""
        if not self._noticed:
            self._say(Notice, kind=why)
        self._noticed = True
        self._bell.ring()

    def stop(self, category: Category = "preempted") -> None:
        """Takes nothing more and ends what runs; `run` returns when what is left of it is stored."""
        self._stopped = category
        self.leave()
        self._cancel(category)

    async def _hand_back(self, seconds: float) -> None:
        await self._outside.clock.sleep(max(0.0, seconds))
        self.stop()

    def _cancel(self, category: Category) -> None:
        for (job, attempt), held in self.held.items():
            if held.phase == "running":
                self._runner.cancel(job, attempt, category)

    def _free(self) -> int:
        cap = self._control.slots_cap if self._control else None
        slots = min(self._slots, cap or self._slots)
        used = sum(held.phase != "storing" for held in self.held.values()) + self._taking
        slots = min(slots, max(1, used + self.place.room()))
        return 0 if self._alone else slots - used

    def _listening(self) -> bool:
        control, now = self._control, self._outside.clock.now()
        if control is None or control.mode != "run" or control.halt or self._noticed:
            return False
        led = not control.must_live or now - self._led < _UNLED
        return led and now - self._accepted < TTL

    def _leaving(self) -> bool:
        if self.held or self._taking:
            self._busy = self._outside.clock.now()
            return self._noticed
        asked = self._control is not None and self._control.mode in ("drain", "stop")
        return asked or self._noticed or self._outside.clock.now() - self._busy > self.place.idle_timeout

    async def _take(self, most: int) -> None:
        queue, found = self._outside.safe, list[Delivery]()
        try:
            if self.place.market != "spot":
                found = list(await queue.receive(min(most, queue.batch), 0))
            if not found:
                queue = self._outside.work
                found = list(await queue.receive(min(most, queue.batch), min(_WAIT, self.place.look)))
        except Unreachable:
            await self._outside.clock.sleep(1.0 + self._jitter())
            return
        if not self._listening():
            return
        for delivery in found:
            self._taking += 1
            self._outside.spawn(self._serve(queue, delivery))

    async def _serve(self, queue: Queue, delivery: Delivery) -> None:
        try:
            offer = Offer.read(delivery.body)
        except Unreadable:
            self._say(Notice, kind="bad_offer")
            offer = None
        if offer and self._declines(offer):
            self._taking -= 1
            return
        mine = offer is not None and await self._claim(offer)
        if offer and mine:
            self.held[offer.j, offer.n] = _Held(offer)
        self._taking -= 1
        if mine is not None:
            # What is claimed needs no offer: another delivery would only be refused.
            await self._ack(queue, delivery)
        if offer and mine:
            try:
                await self._attempt(self.held[offer.j, offer.n])
            finally:
                # What is no longer listed is offered again, should it have ended without an account.
                del self.held[offer.j, offer.n]
        self._bell.ring()

    def _declines(self, offer: Offer) -> bool:
        """Whether another worker had better take this; when it comes again, nobody did."""
        declined = offer.avoid == self.place.worker and (offer.j, offer.n) not in self._declined
        if declined:
            self._declined.add((offer.j, offer.n))
        return declined

    async def _claim(self, offer: Offer) -> bool | None:
        """Whether the attempt is ours; None when that cannot be known."""
        outside = self._outside
        key, nonce = outside.keys.claim(offer.j, offer.n), outside.nonce()
        body = Claim(worker=self.place.worker, boot=self.boot, nonce=nonce).text().encode()
        try:
            if await outside.surely(lambda: outside.store.create(key, body), _CLAIM_TRIES):
                return True
            found = await outside.surely(lambda: outside.store.get(key), _CLAIM_TRIES)
            # The reply to a create of ours may have been lost.
            return found is not None and Claim.read(found.body).nonce == nonce
        except Unreachable:
            return None
        except Unreadable:
            return False

    async def _ack(self, queue: Queue, delivery: Delivery) -> None:
        try:
            await queue.ack([delivery.receipt])
        except Unreachable:
            # It comes again, and the claim refuses it.
            return

    async def _attempt(self, held: _Held) -> None:
        offer, key = held.offer, (held.offer.j, held.offer.n)
        if offer.n > 1 and await self._decided(offer.j, offer.reopened):
            await self._leave_behind(offer, Finish("cancelled", None), "superseded")
            return
        while offer.alone and (self._alone not in (None, key) or self._running()):
            self._alone = self._alone or key
            await self._outside.clock.sleep(1.0)
        self._alone = key if offer.alone else self._alone
        if category := self._stopped or self._stopped_by_control():
            self._alone = None if self._alone == key else self._alone
            outcome = outcome_of(category)
            await self._leave_behind(offer, Finish(outcome, None, category), outcome)
            return
        held.phase = "running"
        finish = await self._runner.run(
            offer.j, offer.n, lambda result: self._say(SampleDone, job=offer.j, n=offer.n, result=result)
        )
        held.phase = "storing"
        self._alone = None if self._alone == key else self._alone
        self._bell.ring()
        if finish.outcome == "completed":
            try:
                await self._commit(offer, finish)
            except BodyLost:
                lost = "its log was removed before it was stored"
                gone = Finish("failed", None, "worker_lost", lost, None, (), finish.usd, finish.duration_s)
                await self._leave_behind(offer, gone, "failed")
            self._slots = min(self._slots + 1, self.place.slots)
        else:
            await self._leave_behind(offer, finish, finish.outcome)
        self._runner.forget(offer.j, offer.n)

    def _stopped_by_control(self) -> Category | None:
        """Why the controller wants what runs to be ended."""
        control = self._control
        if control is None:
            return None
        return "cancelled" if control.mode == "stop" else "budget" if control.halt else None

    def _running(self) -> int:
        return sum(held.phase == "running" for held in self.held.values())

    async def _decided(self, job: str, reopened: Reopen | None) -> bool:
        """Whether there is a verdict that counts."""
        outside = self._outside
        head = await outside.surely(lambda: outside.store.head(outside.keys.verdict(job)))
        return head is not None and not _is_old(job, head, reopened)

    async def _commit(self, offer: Offer, finish: Finish) -> None:
        """Makes a finished log the verdict, or finds out that there is another. It is never run again.

        Raises:
            BodyLost: Somebody removed the log; there is no verdict of this attempt.
        """
        outside, nonce = self._outside, self._outside.nonce()
        key, log = outside.keys.verdict(offer.j), finish.log
        assert log is not None
        meta = verdict_meta("completed", offer.n, self.place.worker, nonce, finish.usd, log)
        if await outside.surely(lambda: outside.store.create(key, log, meta)) is None:
            head = await outside.surely(lambda: outside.store.head(key))
            if head is None or head.meta.get("ct-nonce") != nonce:
                old = head is not None and _is_old(offer.j, head, offer.reopened)
                late = old or (head is not None and read_verdict(offer.j, head).status == "failed")
                await self._leave_behind(offer, finish, "completed_late" if late else "superseded")
                return
        self._done(offer, finish, "completed")

    async def _leave_behind(
        self,
        offer: Offer,
        finish: Finish,
        outcome: Literal["completed_late", "failed", "superseded", "preempted", "cancelled"],
    ) -> None:
        """Stores what an attempt left that is not the verdict, its account last."""
        outside, log = self._outside, finish.log
        if log is not None:
            key = outside.keys.log(offer.j, offer.n)
            # The account says what is known without it.
            with suppress(BodyLost):
                await outside.surely(lambda: outside.store.create(key, log))
        if output := finish.output:
            await outside.surely(lambda: outside.store.create(outside.keys.output(offer.j, offer.n), output))
        ending = Ending(
            job=offer.j,
            n=offer.n,
            worker=self.place.worker,
            boot=self.boot,
            outcome=outcome,
            category=finish.category,
            error_summary=finish.error_summary,
            fingerprint=finish.fingerprint,
            samples=finish.samples,
            usd=finish.usd,
            duration_s=finish.duration_s,
            retry_after_s=finish.retry_after_s,
        )
        account, body = outside.keys.outcome(offer.j, offer.n), ending.text().encode()
        await outside.surely(lambda: outside.store.create(account, body))
        self._done(offer, finish, outcome)

    def _done(self, offer: Offer, finish: Finish, outcome: str) -> None:
        self._say(
            AttemptDone,
            job=offer.j,
            n=offer.n,
            outcome=outcome,
            category=finish.category,
            samples=finish.samples,
            duration_s=finish.duration_s,
        )

    async def _live(self) -> None:
        """Heartbeats, and looking what the controller wants."""
        due = 0.0
        while not self._ended:
            await self._read_control()
            if (left := due - self._outside.clock.now()) > 0:
                await self._beat.wait(min(self.place.look, left))
                continue
            holds = tuple(
                Hold(job=job, n=n, phase=held.phase, usd=self._runner.spent(job, n))
                for (job, n), held in self.held.items()
            )
            refusals = self._runner.backoff()
            self._refused(refusals)
            beat = self._message(Heartbeat, holds=holds, slots=self.place.slots, backoff=refusals)
            if await self._send([beat]):
                now = self._outside.clock.now()
                if now - self._accepted >= TTL:
                    await self._drop_decided()
                    self._bell.ring()
                self._accepted = now
                await self._flush()
            wait = HEARTBEAT * (0.8 + 0.4 * self._jitter())
            due = self._outside.clock.now() + wait
            await self._beat.wait(min(self.place.look, wait))

    def _refused(self, times: int) -> None:
        now = self._outside.clock.now()
        if times >= _REFUSALS and now - self._halved >= _HALVE:
            self._slots, self._halved = max(1, self._slots // 2), now

    async def _drop_decided(self) -> None:
        """After a time apart from the fleet: others may have done what runs here."""
        for key, held in list(self.held.items()):
            if held.phase == "running" and await self._decided(key[0], held.offer.reopened):
                self._runner.cancel(*key, "cancelled")

    async def _read_control(self) -> None:
        outside = self._outside
        try:
            found = await outside.store.get(outside.keys.control)
            if found is None or found.etag == self._control_etag:
                return
            control = Control.read(found.body)
        except (Unreachable, Unreadable):
            return
        before = self._control
        if before and control.epoch < before.epoch:
            return
        self._control_etag = found.etag
        if before is None or (before.epoch, before.turn) != (control.epoch, control.turn):
            self._led = outside.clock.now()
        self._control = control
        if category := self._stopped_by_control():
            self._cancel(category)
        if self.place.worker in control.leave:
            self.leave()
        if before is None or (before.mode, before.halt) != (control.mode, control.halt):
            self._bell.ring()

    def _message(self, what: type[Message], /, **fields: Any) -> str:
        self._seq += 1
        common = {"fleet": self._outside.keys.fleet, "worker": self.place.worker, "boot": self.boot}
        return what(**common, seq=self._seq, **fields).text()

    def _say(self, what: type[Message], /, **fields: Any) -> None:
        self._spool.append(self._message(what, **fields))
        self._outside.spawn(self._flush())

    async def _flush(self) -> None:
        """Sends what waits; what could not be sent waits on."""
        if self._flushing:
            return
        self._flushing = True
        while (batch := self._spool[: self._outside.done.batch]) and await self._send(batch):
            del self._spool[: len(batch)]
        self._flushing = False

    async def _send(self, texts: list[str]) -> bool:
        try:
            return not await self._outside.done.send(texts)
        except Unreachable:
            return False


def _is_old(job: str, head: Head, reopened: Reopen | None) -> bool:
    """Whether a verdict is from before its job was reopened."""
    verdict = read_verdict(job, head)
    return reopened is not None and reopened.covers(verdict.attempt, verdict.status)
