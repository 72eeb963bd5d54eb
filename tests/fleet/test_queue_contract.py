"""What every queue of a fleet must do; nothing here relies on an order."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from control_tower.fleet.ports import Delivery, Queue
from control_tower.fleet.sqlite_queue import SqliteQueue
from control_tower.fleet.system_clock import SystemClock
from tests.fleet.memory import MemoryQueue

T = TypeVar("T")
VISIBILITY = 600.0


class Clock(SystemClock):
    """Time that a test may let pass."""

    passed = 0.0

    def now(self) -> float:
        return super().now() + self.passed

    def wall(self) -> float:
        return super().wall() + self.passed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Iterator[Callable[[], Queue]]:
    """Opens the same queue again and again, as several processes would."""
    memory = MemoryQueue(clock, visibility=VISIBILITY, random=Random(1))
    files: list[SqliteQueue] = []

    def one() -> Queue:
        if request.param == "memory":
            return memory
        files.append(SqliteQueue(tmp_path / "queues", "work", clock, visibility=VISIBILITY))
        return files[-1]

    yield one
    for file in files:
        file.close()


def run(call: Awaitable[T]) -> T:
    async def it() -> T:
        return await call

    return asyncio.run(it())


async def drained(queue: Queue) -> list[Delivery]:
    """All that is visible, acknowledged."""
    found: list[Delivery] = []
    while batch := await queue.receive(queue.batch, 0):
        found += batch
        await queue.ack([one.receipt for one in batch])
    return found


def test_every_message_comes_and_an_acknowledged_one_never_again(
    opened: Callable[[], Queue], clock: Clock
) -> None:
    batch = opened().batch
    sent = [f"message {n} \u00e9\n" for n in range(2 * batch + 5)]
    for start in range(0, len(sent), batch):
        assert list(run(opened().send(sent[start : start + batch]))) == []
    assert sorted(one.body for one in run(drained(opened()))) == sorted(sent)
    clock.passed += VISIBILITY + 1
    assert list(run(opened().receive(10, 0))) == []


def test_a_received_message_is_hidden_and_comes_again(opened: Callable[[], Queue], clock: Clock) -> None:
    run(opened().send(["a"]))
    (first,) = run(opened().receive(10, 0))
    assert list(run(opened().receive(10, 0))) == []
    assert run(opened().depth()).hidden == 1
    clock.passed += VISIBILITY + 1
    (second,) = run(opened().receive(10, 0))
    assert (first.body, second.body) == ("a", "a")
    assert first.receipt != second.receipt


def test_an_old_receipt_removes_nothing(opened: Callable[[], Queue], clock: Clock) -> None:
    run(opened().send(["a"]))
    (first,) = run(opened().receive(1, 0))
    clock.passed += VISIBILITY + 1
    (second,) = run(opened().receive(1, 0))
    run(opened().ack([first.receipt, "no receipt"]))
    assert run(opened().depth()).hidden == 1
    run(opened().ack([second.receipt]))
    run(opened().ack([second.receipt]))
    depth = run(opened().depth())
    assert (depth.visible, depth.hidden) == (0, 0)


def test_a_limit_is_kept_and_waiting_ends(opened: Callable[[], Queue]) -> None:
    run(opened().send(["a", "b", "c"]))
    taken = run(opened().receive(2, 0))
    assert len(taken) <= 2
    run(opened().ack([one.receipt for one in taken]))
    run(drained(opened()))

    async def late() -> list[str]:
        waiting = asyncio.create_task(_receive(opened(), 60))
        await asyncio.sleep(0.2)
        await opened().send(["late"])
        return await waiting

    assert run(late()) == ["late"]
    assert run(_receive(opened(), 0.2)) == []


async def _receive(queue: Queue, wait: float) -> list[str]:
    return [one.body for one in await queue.receive(1, wait)]


def test_many_takers_lose_nothing_and_share_nothing_while_it_is_hidden(opened: Callable[[], Queue]) -> None:
    async def all_of_them() -> Counter[str]:
        await asyncio.gather(*(opened().send([f"{t}.{n}" for n in range(10)]) for t in range(10)))
        taken = await asyncio.gather(*(drained(opened()) for _ in range(4)))
        return Counter(one.body for some in taken for one in some)

    counted = run(all_of_them())
    assert len(counted) == 100
    assert set(counted.values()) == {1}
