"""Carries out what the decision core asks for, and tells what came of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from control_tower.errors import ValidationError
from control_tower.fleet.documents import Reopen, Reopened, SampleResult, Seal, unscored
from control_tower.fleet.facts import (
    Action,
    End,
    Ended,
    Event,
    Give,
    Look,
    Read,
    ReadEnding,
    ReadSamples,
    Reopening,
    Replace,
    Sealed,
    Start,
    Started,
    WriteFailed,
    WriteReopening,
    WriteSeal,
)
from control_tower.fleet.messages import Offer
from control_tower.fleet.outcomes import Verdict
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Launch, Provider, Queue, Unreachable
from control_tower.fleet.sweep import Sweeper
from control_tower.fleet.verdicts import read_verdict, verdict_meta
from control_tower.fleet.wire import Unreadable

_SENDERS = 8


class LogKind(Protocol):
    """What the controller must know of logs."""

    def samples(self, log: bytes) -> Sequence[SampleResult]:
        """What the samples of a log came to.

        Raises:
            ValidationError: It is no log.
        """
        ...

    def empty(self, job: str, category: Verdict, summary: str | None) -> bytes:
        """A log without samples that says why a job failed."""
        ...


class Hands:
    """Does what takes time, each action beside the others."""

    def __init__(
        self,
        outside: Outside,
        provider: Provider,
        logs: LogKind,
        tell: Callable[[Event], None],
        alarm: Callable[[str], None],
        launched: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        """Does nothing yet.

        Args:
            outside: The fleet.
            provider: Its machines.
            logs: Knows how logs are read and written.
            tell: Told what came of actions.
            alarm: Told of objects that cannot be read.
            launched: Returns when the store says that the launch of this number was asked for.
        """
        self.sweeper = Sweeper(outside, alarm)
        self.sending = 0
        """Who still sends offers."""
        self._outside = outside
        self._provider = provider
        self._logs = logs
        self._tell = tell
        self._alarm = alarm
        self._launched = launched

    def begin(self, action: Action) -> None:
        """Begins to carry out an action other than an offer."""
        match action:
            case Look(job):
                work = self._look(job)
            case ReadEnding(job, attempt):
                work = self._read_ending(job, attempt)
            case ReadSamples():
                work = self._read_samples(action)
            case WriteFailed():
                work = self._write_failed(action)
            case Replace():
                work = self._replace(action)
            case Start():
                work = self._start(action)
            case End(ids):
                work = self._end(ids)
            case WriteSeal():
                work = self._seal(action)
            case WriteReopening():
                work = self._reopen(action)
            case _:
                raise AssertionError(f"{action} is nothing to carry out")
        self._outside.spawn(work)

    def offer(self, gives: Sequence[Give]) -> None:
        """Begins to send offers."""
        for queue, safe in ((self._outside.safe, True), (self._outside.work, False)):
            some = [one for one in gives if one.safe == safe]
            batches = [some[at : at + queue.batch] for at in range(0, len(some), queue.batch)]
            for sender in range(min(_SENDERS, len(batches))):
                self.sending += 1
                self._outside.spawn(self._offer(queue, batches[sender::_SENDERS]))

    async def _offer(self, queue: Queue, batches: Sequence[Sequence[Give]]) -> None:
        fleet = self._outside.keys.fleet
        for batch in batches:
            texts = [
                Offer(
                    f=fleet,
                    j=one.job,
                    n=one.attempt,
                    alone=one.alone,
                    avoid=one.avoid,
                    reopened=one.reopened,
                ).text()
                for one in batch
            ]
            while texts:
                rest = await self._outside.surely(lambda texts=texts: queue.send(texts))
                texts = [texts[at] for at in rest]
        self.sending -= 1

    async def _look(self, job: str) -> None:
        outside = self._outside
        head = await outside.surely(lambda: outside.store.head(outside.keys.verdict(job)))
        if head:
            self._tell(read_verdict(job, head))

    async def _read_ending(self, job: str, attempt: int) -> None:
        if found := await self.sweeper.ending(self._outside.keys.outcome(job, attempt)):
            self._tell(Ended(found))

    async def _read_samples(self, action: ReadSamples) -> None:
        self._tell(Read(action.job, action.attempt, await self._samples(action.job)))

    async def _samples(self, job: str) -> Sequence[SampleResult]:
        """What the samples of a verdict came to; none where that cannot be read."""
        outside, key = self._outside, self._outside.keys.verdict(job)
        found = await outside.surely(lambda: outside.store.get(key))
        try:
            if found:
                return self._logs.samples(found.body)
            self._alarm(f"{key}: is not there any more")
        except ValidationError as error:
            self._alarm(f"{key}: {error}")
        return ()

    async def _write_failed(self, action: WriteFailed) -> None:
        outside, store, keys = self._outside, self._outside.store, self._outside.keys
        key, again = keys.verdict(action.job), action.reopened
        found = await outside.surely(lambda: store.get(keys.log(action.job, action.attempt)))
        log = found.body if found else self._logs.empty(action.job, action.category, action.summary)
        ending = await self.sweeper.ending(keys.outcome(action.job, action.attempt))
        worker, usd = (ending.worker, ending.usd) if ending else ("", None)
        meta = verdict_meta("failed", action.attempt, worker, outside.nonce(), usd, log, action.category)
        there = await outside.surely(lambda: store.head(key)) if again else None
        verdict = read_verdict(action.job, there) if there else None
        if verdict is None:
            await outside.surely(lambda: store.create(key, log, meta))
        elif again and verdict.status == "failed" and again.covers(verdict.attempt, "failed"):
            await outside.surely(lambda: store.replace(key, log, meta, etag=verdict.etag))
        await self._look(action.job)

    async def _replace(self, action: Replace) -> None:
        outside, store, keys = self._outside, self._outside.store, self._outside.keys
        found = await outside.surely(lambda: store.get(keys.log(action.job, action.attempt)))
        ending = await self.sweeper.ending(keys.outcome(action.job, action.attempt))
        if found and ending:
            nonce = outside.nonce()
            meta = verdict_meta("completed", action.attempt, action.worker, nonce, ending.usd, found.body)
            key = keys.verdict(action.job)
            await outside.surely(lambda: store.replace(key, found.body, meta, etag=action.etag))
            await self._look(action.job)

    async def _start(self, action: Start) -> None:
        outside = self._outside
        # Whoever comes after this controller must know that it was asked for.
        await self._launched(action.number)
        request = Launch(
            outside.keys.fleet, f"{outside.keys.fleet}-{action.number}", action.count, action.market
        )
        answer = await outside.surely(lambda: self._provider.launch(request))
        self._tell(Started(action.number, answer.ids, answer.missing, answer.reason, action.market))

    async def _end(self, ids: Sequence[str]) -> None:
        # The core asks again while they are listed.
        with suppress(Unreachable):
            await self._provider.terminate(ids)

    async def _seal(self, action: WriteSeal) -> None:
        """A seal that says otherwise was overtaken by what its writer did not know: the next one counts."""
        outside, number, body = self._outside, action.number, Seal(jobs=action.jobs).text().encode()
        while await self._create(outside.keys.seal(number), body) != body:
            number += 1
        self._tell(Sealed(number))

    async def _reopen(self, action: WriteReopening) -> None:
        jobs, key = dict(action.jobs), self._outside.keys.reopening(action.asked)

        async def look(job: str, reopen: Reopen) -> None:
            if any(unscored(sample) for sample in await self._samples(job)):
                jobs[job] = reopen

        await self._outside.together([partial(look, job, one) for job, one in action.unscored.items()])
        if jobs:
            body = Reopened(seal=action.seal, asked=action.asked, jobs=jobs).text().encode()
            try:
                # What an earlier controller found for the same question counts.
                jobs = Reopened.read(await self._create(key, body)).jobs
            except Unreadable as error:
                self._alarm(f"{key}: {error}")
                jobs = {}
        self._tell(Reopening(jobs))

    async def _create(self, key: str, body: bytes) -> bytes:
        """Creates an object; returns what is there then."""
        outside = self._outside
        while await outside.surely(lambda: outside.store.create(key, body)) is None:
            if there := await outside.surely(lambda: outside.store.get(key)):
                return there.body
        return body
