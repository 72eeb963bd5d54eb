"""The controller: tells the decision core what happens, and has done what it asks for.

Nothing is remembered here that is not in the store or in the log of events, so it may be killed at any
moment: the next one looks at the store first. Every call that fails is repeated or told to the core; none
ends a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from control_tower.fleet.documents import Asked, Control
from control_tower.fleet.events import EventLog
from control_tower.fleet.facts import (
    Changed,
    Emit,
    End,
    Event,
    Exit,
    Give,
    Heard,
    Interrupted,
    Listed,
    Polled,
    Reopening,
    Retry,
    SetControl,
    Tick,
)
from control_tower.fleet.hands import Hands, LogKind
from control_tower.fleet.lease import LeaseKeeper
from control_tower.fleet.messages import read_message
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Provider, Unreachable
from control_tower.fleet.progress import Progress, progress
from control_tower.fleet.reconcile import Policy, State, decide
from control_tower.fleet.standing import Standing, begin, read_asked, read_standing
from control_tower.fleet.wire import Unreadable

_RECEIVERS = 4
_TOUCH = 300.0
"""Seconds after which workers are told again what they know, to show that this controller lives."""


@dataclass(frozen=True)
class Pace:
    """How often a controller looks, seconds."""

    tick: float = 2.0
    """After which time passes for the core."""
    sweep: float = 60.0
    """Between two looks at the store, ten times as long as the last one took at least."""
    list: float = 15.0
    """Between two looks at the machines."""
    list_at_end: float = 2.0
    """The same while they are being ended."""
    asked: float = 2.0
    """Between two looks at what users ask."""


NEAR = Pace(tick=0.5, list=2.0, list_at_end=0.2)
"""For machines whose lists are exact and cost nothing."""


class Controller:
    """Runs one fleet to its end."""

    def __init__(
        self,
        jobs: Sequence[str],
        policy: Policy,
        outside: Outside,
        provider: Provider,
        events: EventLog,
        logs: LogKind,
        owner: str,
        gone: Callable[[str], bool] | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Does nothing yet.

        Args:
            jobs: Ids of all jobs, longest first.
            policy: What the user wants.
            outside: The fleet.
            provider: Its machines.
            events: Its log.
            logs: Knows how logs are read and written.
            owner: Who this is, for others who look at the lease.
            gone: Whether an owner is surely no more, so that its lease need not run out.
            pace: How often it looks.
        """
        self.state: State | None = None
        self._jobs = jobs
        self._policy = policy
        self._outside = outside
        self._provider = provider
        self._events = events
        self._pace = pace or Pace()
        self._lease = LeaseKeeper(outside, owner, gone)
        self._hands = Hands(outside, provider, logs, self.tell, self._alarm, self._launched)
        self._code: int | None = None
        self._detaching = False
        self._unwritten: list[Emit] = []
        self._wanted: SetControl | None = None
        self._told: SetControl | None = None
        self._turn = self._launches = self._asked = self._interrupts = 0
        self._bell = outside.clock.bell()
        self._control_bell = outside.clock.bell()
        self._list_bell = outside.clock.bell()
        self._launch_bell = outside.clock.bell()

    async def run(self) -> int:
        """Runs the fleet; returns the exit code. What it began ends soon after."""
        outside = self._outside
        await self._lease.acquire(lambda: self._interrupts > 0)
        if not self._lease.held:
            return 130
        standing = await outside.surely(lambda: read_standing(outside.store, outside.keys, self._alarm))
        self._begin(standing)
        if self._interrupts:
            self.tell(Interrupted(self._interrupts))
        outside.spawn(self._lease.keep(self.tell))
        for loop in (self._sweeps(), self._lists(), self._controls(), self._asks()):
            outside.spawn(loop)
        for _ in range(_RECEIVERS):
            outside.spawn(self._receives())
        while self._code is None:
            self.tell(Tick())
            self._write()
            if self._detaching and self._settled():
                self._code = 0
            else:
                await self._bell.wait(self._pace.tick)
        while not self._write() and self._interrupts < 3:
            await outside.clock.sleep(self._pace.tick)
        self._list_bell.ring()
        self._control_bell.ring()
        await self._lease.release()
        return self._code

    def interrupt(self, times: int) -> None:
        """The user wants to stop: 1 let what runs finish, 2 end it now, 3 leave at once."""
        self._interrupts = times
        if self.state:
            self.tell(Interrupted(times))
            self._bell.ring()

    def detach(self) -> None:
        """Has `run` return 0 as soon as all that is due is offered and started; the fleet goes on."""
        self._detaching = True
        self._bell.ring()

    def progress(self) -> Progress:
        """How far the fleet is."""
        return progress(self.state) if self.state else Progress(total=len(self._jobs))

    def tell(self, event: Event) -> None:
        """Tells the core something, and begins what it asks for."""
        assert self.state is not None
        gives: list[Give] = []
        for action in decide(self.state, event, self._outside.clock.now()):
            match action:
                case Give():
                    gives.append(action)
                case Emit():
                    self._unwritten.append(action)
                case SetControl():
                    self._wanted = action
                    self._control_bell.ring()
                case Exit(code):
                    self._code = code
                    self._bell.ring()
                case _:
                    self._hands.begin(action)
                    if isinstance(action, End):
                        self._list_bell.ring()
        if gives:
            self._hands.offer(gives)
        if isinstance(event, Reopening):
            self._control_bell.ring()

    def _begin(self, standing: Standing) -> None:
        self._turn = standing.control.turn if standing.control else 0
        self._launches = standing.launches
        fleet, told = self._outside.keys.fleet, self._events.told
        self.state, first = begin(fleet, self._jobs, self._policy, told, standing)
        for event in first:
            self.tell(event)
        self._asked = max(standing.asked, default=standing.applied)

    def _settled(self) -> bool:
        """Whether workers can go on alone."""
        state = self.state
        due = state and state.swept and not state.retries and not state.machines.launching
        return bool(due) and not self._hands.sending and self._told == self._wanted

    def _applied(self) -> int:
        """The last `Asked` of which nothing is left to be done, should this controller end now."""
        retries = self.state.retries if self.state else []
        return retries[0].number - 1 if retries else self._asked

    def _alarm(self, text: str) -> None:
        self._unwritten.append(Emit("alarm", {"text": text}))

    async def _launched(self, number: int) -> None:
        while self._launches < number:
            await self._launch_bell.wait(self._pace.tick)

    def _write(self) -> bool:
        """Writes events durably; False when there is no room, and then nothing is acknowledged."""
        try:
            if self._unwritten:
                self._events.write([(one.kind, one.fields) for one in self._unwritten])
                self._unwritten.clear()
            self._events.sync()
        except OSError:
            return False
        return True

    async def _receives(self) -> None:
        done, keys = self._outside.done, self._outside.keys
        while self._code is None:
            if not self._lease.held:
                # What it took would be missed by the controller that holds the lease.
                await self._outside.clock.sleep(self._pace.tick)
                continue
            try:
                found = await done.receive(done.batch, 20.0)
            except Unreachable:
                await self._outside.clock.sleep(self._pace.tick)
                continue
            if len(found) < done.batch:
                self.tell(Polled())
            for delivery in found:
                try:
                    message = read_message(delivery.body)
                except Unreadable as error:
                    self._alarm(f"unreadable {error}")
                    continue
                if message.fleet == keys.fleet:
                    self.tell(Heard(message))
            if found and self._lease.held and self._write():
                # Those that are not acknowledged come again, and are known then.
                with suppress(Unreachable):
                    await done.ack([delivery.receipt for delivery in found])

    async def _sweeps(self) -> None:
        clock, first = self._outside.clock, True
        while self._code is None:
            began = clock.now()
            try:
                self.tell(await self._hands.sweeper.sweep())
            except Unreachable:
                await clock.sleep(5.0)
                continue
            if first:
                # Machines can be started now.
                self._bell.ring()
                first = False
            await clock.sleep(max(self._pace.sweep, 10 * (clock.now() - began)))

    async def _lists(self) -> None:
        while self._code is None:
            # No answer says nothing about machines.
            with suppress(Unreachable):
                self.tell(Listed(await self._provider.list(self._outside.keys.fleet)))
            ending = self.state is not None and self.state.summed
            await self._list_bell.wait(self._pace.list_at_end if ending else self._pace.list)

    async def _asks(self) -> None:
        outside = self._outside
        while self._code is None:
            await outside.clock.sleep(self._pace.asked)
            if not self._lease.held:
                continue
            try:
                new = await read_asked(outside.store, outside.keys, self._asked, self._alarm)
            except Unreachable:
                continue
            for number, asked in new.items():
                self._asked = number
                self._apply(number, asked)
            if new:
                self._control_bell.ring()

    def _apply(self, number: int, asked: Asked) -> None:
        mode = "run" if asked.kind == "resume" else None
        self.tell(Changed(mode, asked.budget_usd, asked.budget_hard_usd, asked.workers))
        if asked.retry:
            self.tell(Retry(number, asked.retry))
        if asked.kind in ("drain", "stop"):
            self.interrupt(1 if asked.kind == "drain" else 2)

    async def _controls(self) -> None:
        """Writes what workers are told: when it changes, and now and then to show that this one lives."""
        outside = self._outside
        while self._code is None:
            await self._control_bell.wait(_TOUCH)
            wanted = self._wanted
            if wanted is None or not self._lease.held or self._code is not None:
                continue
            self._turn += 1
            control = Control(
                epoch=self._lease.epoch,
                turn=self._turn,
                mode=wanted.mode,
                why=wanted.why,
                slots_cap=wanted.slots_cap,
                launches=wanted.launches,
                must_live=wanted.must_live,
                leave=wanted.leave,
                halt=wanted.halt,
                asked=self._applied(),
            )
            body = control.text().encode()
            await outside.surely(lambda body=body: outside.store.put(outside.keys.control, body))
            self._told = wanted
            self._launches = max(self._launches, wanted.launches)
            self._launch_bell.ring()
            if self._detaching:
                self._bell.ring()
