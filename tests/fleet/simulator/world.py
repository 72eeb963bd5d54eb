"""Virtual time and machines: every await is an event of its own, between which anything may die.

A machine that is killed never runs another step: no `finally` and no `except` of it. Calls that were on
their way are carried out all the same.
"""

import heapq
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from control_tower.fleet.ports import Unreachable
from tests.fleet.simulator.faults import Faults

T = TypeVar("T")


class Awaited(Protocol):
    """What a coroutine waits for; it is told who waits."""

    def begin(self, machine: "Machine", work: Coroutine[Any, Any, Any]) -> None:
        """Begins; later the coroutine goes on."""
        ...


class World:
    """What happens, in the order of virtual time."""

    def __init__(self, seed: int, faults: Faults, *, traced: bool = False) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.time = 0.0
        self.events = 0
        self.trace: list[str] | None = [] if traced else None
        self.violations: list[str] = []
        self.dead: list[Coroutine[Any, Any, Any]] = []
        """What ran on machines that died: kept, so that it is never closed."""
        self.failed: Counter[str] = Counter()
        """How often a call failed, by what it was."""
        self.before_step: Callable[[Machine], None] | None = None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    @property
    def faulty(self) -> bool:
        """Whether faults still happen."""
        return self.time < self.faults.until

    def at(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Does something later."""
        self._count += 1
        heapq.heappush(self._heap, (self.time + delay, self._count, call, args))

    def run(self, over: Callable[[], bool], until: float) -> None:
        """Lets time pass until it is over, something is wrong, or `until`."""
        heap, pop = self._heap, heapq.heappop
        while heap and not over() and not self.violations:
            if heap[0][0] > until:
                self.time = until
                return
            self.time, _, call, args = pop(heap)
            self.events += 1
            call(*args)

    def chance(self, probability: float) -> bool:
        """Whether a fault happens now."""
        return self.time < self.faults.until and self.random.random() < probability

    def latency(self) -> float:
        """Seconds that half of a call takes."""
        drawn = self.random.random()
        slow = drawn < self.faults.slow and self.time < self.faults.until
        return self.random.random() * 10.0 if slow else drawn * 0.05

    def note(self, who: str, what: str) -> None:
        """Adds to the schedule that is printed when something is wrong."""
        if self.trace is not None:
            self.trace.append(f"{self.time:10.2f} {who:12} {what}")

    def wrong(self, what: str) -> None:
        """Something that must never be."""
        self.note("WRONG", what)
        self.violations.append(f"at {self.time:.1f} s: {what}")


class Wait:
    """An await that is over when somebody lets the coroutine go on."""

    __slots__ = ("begin",)

    def __init__(self, begin: Callable[["Machine", Coroutine[Any, Any, Any]], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Awaited, Any, Any]:
        return (yield self)


class Call(Generic[T]):
    """A call over the network: carried out some time later, answered some time after that.

    Either way may be lost; the caller is told of both as one error.
    """

    __slots__ = ("_apply", "_lost", "_machine", "_what", "_work")

    def __init__(self, what: str, apply: Callable[[], T]) -> None:
        self._what = what
        self._apply = apply

    def __await__(self) -> Generator[Awaited, Any, T]:
        return (yield self)

    def begin(self, machine: "Machine", work: Coroutine[Any, Any, Any]) -> None:
        """It is sent."""
        self._machine, self._work, world = machine, work, machine.world
        self._lost = machine.cut or world.chance(world.faults.call_lost)
        world.at(world.latency(), self._carry_out)

    def _carry_out(self) -> None:
        machine, world = self._machine, self._machine.world
        if self._lost or machine.cut:
            self._fail("lost")
            return
        value = self._apply()
        if world.chance(world.faults.reply_lost):
            self._fail("done, the reply is lost")
            return
        if world.trace is not None:
            world.note(machine.name, f"{self._what}: {_short(value)}")
        world.at(world.latency(), machine.step, self._work, value)

    def _fail(self, how: str) -> None:
        machine, world = self._machine, self._machine.world
        world.note(machine.name, f"{self._what}: {how}")
        world.failed[self._what] += 1
        world.at(world.faults.timeout, machine.step, self._work, None, Unreachable(self._what))


class Machine:
    """A process on a machine of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.steps = 0
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.killed: float | None = None
        """When it was, where it did not end by itself."""
        self.disturbed = -1e9
        """When it was last paused or cut off for long."""
        self.clock = MachineClock(self)

    @property
    def cut(self) -> bool:
        """Whether nothing reaches it, and it reaches nothing."""
        return self.world.time < self.cut_until

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs something beside the rest."""
        self.world.at(0, self.step, work)

    def step(
        self, work: Coroutine[Any, Any, Any], value: object = None, error: Exception | None = None
    ) -> None:
        """Lets a coroutine run to its next await."""
        if self.alive and self.world.before_step:
            self.world.before_step(self)
        if not self.alive:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            self.world.dead.append(work)
            return
        if self.world.time < self.paused_until:
            self.world.at(self.paused_until - self.world.time, self.step, work, value, error)
            return
        self.steps += 1
        try:
            awaited: Awaited = work.throw(error) if error else work.send(value)
        except StopIteration:
            return
        awaited.begin(self, work)

    def kill(self) -> None:
        """Ends it between two steps."""
        if self.alive:
            self.world.note(self.name, "killed")
            self.killed = self.world.time
        self.alive = False

    def end(self) -> None:
        """It ends by itself."""
        self.world.note(self.name, "ends")
        self.alive = False

    def pause(self, seconds: float) -> None:
        """Stops it for a while."""
        self.world.note(self.name, f"paused for {seconds:.0f} s")
        self.paused_until = self.world.time + seconds
        self.disturbed = max(self.disturbed, self.paused_until)

    def cut_off(self, seconds: float) -> None:
        """Takes it off the network for a while."""
        self.world.note(self.name, f"cut off for {seconds:.0f} s")
        self.cut_until = self.world.time + seconds
        self.disturbed = max(self.disturbed, self.cut_until)

    def call(self, what: str, apply: Callable[[], T]) -> Call[T]:
        """A call over the network."""
        return Call(what, apply)


class MachineClock:
    """A machine's own time, which says nothing about another's."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._offset = machine.world.random.random() * 1e6

    def now(self) -> float:
        return self._machine.world.time + self._offset

    def wall(self) -> float:
        return 1.8e9 + self._machine.world.time + self._offset % 600

    async def sleep(self, seconds: float) -> None:
        await Wait(lambda machine, work: machine.world.at(seconds, machine.step, work))

    def bell(self) -> "MachineBell":
        return MachineBell(self._machine)


class MachineBell:
    """A bell of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rung = False
        self._waiting: dict[int, Coroutine[Any, Any, Any]] = {}
        self._waits = 0

    def ring(self) -> None:
        self._rung = not self._waiting
        for number in self._waiting:
            self._machine.world.at(0, self._wake, number)

    async def wait(self, seconds: float) -> None:
        if self._rung:
            self._rung = False
            return

        def begin(machine: Machine, work: Coroutine[Any, Any, Any]) -> None:
            self._waits += 1
            self._waiting[self._waits] = work
            machine.world.at(seconds, self._wake, self._waits)

        await Wait(begin)

    def _wake(self, number: int) -> None:
        if work := self._waiting.pop(number, None):
            self._machine.step(work)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"
