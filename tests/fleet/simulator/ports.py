"""The ports of a simulated fleet: what is in memory, reached over a network that loses and delays."""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from control_tower.fleet.ports import (
    Body,
    Delivery,
    Depth,
    Entry,
    Head,
    Instance,
    Launch,
    Launched,
    Object,
)
from tests.fleet.memory import MemoryQueue, MemoryStore
from tests.fleet.simulator.world import Call, Machine, Wait, World

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class SimStore:
    """The store as one machine reaches it."""

    def __init__(self, machine: Machine, memory: MemoryStore, written: Callable[..., None]) -> None:
        self._machine = machine
        self._memory = memory
        self._written = written

    async def get(self, key: str) -> Object | None:
        return await self._call(f"get {key}", lambda: self._memory.get(key))

    async def head(self, key: str) -> Head | None:
        return await self._call(f"head {key}", lambda: self._memory.head(key))

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return await self._call(f"list {prefix}", lambda: self._memory.list(prefix, after))

    async def create(self, key: str, body: Body, meta: Mapping[str, str] | None = None) -> str | None:
        return await self._write(f"create {key}", key, lambda: self._memory.create(key, body, meta))

    async def replace(
        self, key: str, body: Body, meta: Mapping[str, str] | None = None, *, etag: str
    ) -> str | None:
        return await self._write(
            f"replace {key}", key, lambda: self._memory.replace(key, body, meta, etag=etag)
        )

    async def put(self, key: str, body: Body) -> str:
        return await self._write(f"put {key}", key, lambda: self._memory.put(key, body))

    async def delete(self, key: str) -> None:
        await self._call(f"delete {key}", lambda: self._memory.delete(key))

    def _call(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> Call[T]:
        return self._machine.call(what, lambda: at_once(work()))

    def _write(self, what: str, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> Call[T]:
        def apply() -> T:
            before = self._memory.folder(key).get(key)
            value = at_once(work())
            if value is not None:
                self._written(self._machine, key, before, self._memory.folder(key)[key])
            return value

        return self._machine.call(what, apply)


class SharedQueue:
    """A queue and those who wait for its messages."""

    def __init__(self, world: World, clock: Any) -> None:
        self.world = world
        self.memory = MemoryQueue(clock, random=world.random)
        self.waiting: deque[Callable[[], bool]] = deque()

    def put(self, body: str) -> None:
        at_once(self.memory.send([body]))
        self.serve()

    def serve(self) -> None:
        """Gives what is visible to those who wait."""
        while self.waiting and self.memory.visible:
            self.waiting.popleft()()


class SimQueue:
    """A queue as one machine reaches it."""

    batch = 10

    def __init__(
        self,
        machine: Machine,
        shared: SharedQueue,
        name: str,
        sent: Callable[[str], None],
        acked: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._shared = shared
        self._name = name
        self._sent = sent
        self._acked = acked

    async def send(self, bodies: Sequence[str]) -> Sequence[int]:
        world = self._machine.world

        def apply() -> Sequence[int]:
            refused: list[int] = []
            for at, body in enumerate(bodies):
                if world.chance(world.faults.call_lost):
                    refused.append(at)
                    continue
                self._sent(body)
                copies = 2 if world.chance(world.faults.message_doubled) else 1
                for _ in range(0 if world.chance(world.faults.message_lost) else copies):
                    if world.chance(world.faults.message_late):
                        world.at(world.random.random() * 300, self._shared.put, body)
                    else:
                        self._shared.put(body)
            return refused

        traced = world.trace is not None
        return await self._machine.call(f"send {self._name} {' '.join(bodies) if traced else ''}", apply)

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Waits at the queue, not by asking again and again."""
        world, shared = self._machine.world, self._shared
        if not wait:
            return await self._machine.call(f"receive {self._name}", lambda: self._take(limit))
        box: list[Sequence[Delivery]] = []

        def begin(machine: Machine, work: Coroutine[Any, Any, Any]) -> None:
            def give() -> bool:
                if not box:
                    box.append(() if machine.cut else self._take(limit))
                    world.at(0.02, machine.step, work)
                return True

            def arrive() -> None:
                shared.waiting.append(give)
                shared.serve()
                if not box:
                    world.at(wait, give)

            world.at(0.02, arrive)

        if self._machine.cut:
            await self._machine.call(f"receive {self._name}", lambda: None)
        await Wait(begin)
        return await self._machine.call(f"receive {self._name} reply", lambda: box[0])

    async def ack(self, receipts: Sequence[str]) -> None:
        def apply() -> None:
            for receipt in receipts:
                if body := self._shared.memory.body(receipt):
                    self._acked(body)
            at_once(self._shared.memory.ack(receipts))

        await self._machine.call(f"ack {self._name}", apply)

    async def depth(self) -> Depth:
        return await self._machine.call(f"depth {self._name}", lambda: at_once(self._shared.memory.depth()))

    def _take(self, limit: int) -> Sequence[Delivery]:
        found = self._shared.memory.take(limit)
        if found:
            # Whoever waits sees them again when they were not acknowledged.
            self._machine.world.at(self._shared.memory.visibility + 0.001, self._shared.serve)
        return found


class Machines:
    """All machines that the provider ever started."""

    def __init__(self, world: World, boot: Callable[[Instance], Machine]) -> None:
        self.world = world
        self.boot = boot
        self.machines: dict[str, tuple[Instance, Machine]] = {}
        self.fleets: dict[str, str] = {}
        self.tokens: dict[str, Launched] = {}
        self.history: deque[tuple[float, list[Instance]]] = deque(maxlen=8)

    def launch(self, request: Launch) -> Launched:
        if request.token in self.tokens:
            return self.tokens[request.token]
        world = self.world
        short = world.random.randrange(request.count + 1) if world.chance(world.faults.no_capacity) else 0
        ids: list[str] = []
        for _ in range(request.count - short):
            instance = Instance(f"i-{len(self.machines)}", request.market, gone=False, price=0.3)
            self.machines[instance.id] = (instance, self.boot(instance))
            self.fleets[instance.id] = request.fleet
            ids.append(instance.id)
        answer = Launched(tuple(ids), short, "no capacity" if short else None)
        self.tokens[request.token] = answer
        return answer

    def instances(self, fleet: str) -> list[Instance]:
        now = [
            Instance(one.id, one.market, gone=not machine.alive, price=one.price)
            for one, machine in self.machines.values()
            if self.fleets[one.id] == fleet
        ]
        self.history.append((self.world.time, now))
        if self.world.chance(self.world.faults.stale):
            return next(old for at, old in self.history if at >= self.world.time - 40)
        return now

    def terminate(self, ids: Sequence[str]) -> None:
        for id in ids:
            if id in self.machines:
                self.machines[id][1].kill()


class SimProvider:
    """The machines as a controller reaches them."""

    def __init__(self, machine: Machine, machines: Machines) -> None:
        self._machine = machine
        self._machines = machines

    async def launch(self, request: Launch) -> Launched:
        return await self._machine.call(f"launch {request}", lambda: self._machines.launch(request))

    async def list(self, fleet: str) -> Sequence[Instance]:
        return await self._machine.call("list machines", lambda: self._machines.instances(fleet))

    async def terminate(self, ids: Sequence[str]) -> None:
        await self._machine.call(f"terminate {len(ids)}", lambda: self._machines.terminate(ids))
