"""What every provider of machines must do; lists may be late, so the tests ask until they agree."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from control_tower.fleet.local_provider import LocalProvider
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.plan import FleetFile
from control_tower.fleet.ports import Instance, Launch, Market, Provider
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.system_clock import SystemClock
from tests.fleet.simulator.faults import NONE
from tests.fleet.simulator.ports import Machines, SimProvider
from tests.fleet.simulator.world import Machine, World

T = TypeVar("T")


@dataclass
class Opened:
    """Providers, one for each fleet or one for all, and how their calls are run."""

    provider: Callable[[str], Provider]
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    market: Market

    def launch(self, token: str, count: int, fleet: str = "f") -> list[str]:
        answer = self.run(self.provider(fleet).launch(Launch(fleet, token, count, self.market)))
        assert len(answer.ids) + answer.missing == count
        assert bool(answer.missing) == bool(answer.reason)
        return list(answer.ids)

    def alive(self, fleet: str = "f") -> set[str]:
        return {one.id for one in self.run(self.provider(fleet).list(fleet)) if not one.gone}


def _simulated(_folder: Path) -> Opened:
    world = World(1, NONE)
    machine = Machine(world, "asks")
    machines = Machines(world, lambda instance: Machine(world, instance.id))

    def run(call: Coroutine[Any, Any, T]) -> T:
        answers: list[T] = []

        async def ask() -> None:
            answers.append(await call)

        machine.spawn(ask())
        world.run(lambda: bool(answers), 1e9)
        return answers[0]

    provider = SimProvider(machine, machines)
    return Opened(lambda _: provider, run, "spot")


def _local(folder: Path) -> Opened:
    @cache
    def provider(fleet: str) -> Provider:
        settings = FleetSettings()
        file = FleetFile(
            fleet=fleet,
            created="",
            config={},
            command=None,
            settings=settings,
            jobs=0,
            folder=str(folder),
            log_dir="",
        )
        sleeps = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
        return LocalProvider(LocalPlace(fleet, folder), file, SystemClock(), sleeps)

    return Opened(provider, asyncio.run, "local")


@pytest.fixture(params=[_simulated, _local], ids=["simulated", "local"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    it: Opened = request.param(tmp_path)
    yield it
    for fleet in ("f", "g"):
        it.run(it.provider(fleet).terminate([*it.alive(fleet)]))


def test_machines_that_were_started_are_listed_with_their_market(opened: Opened) -> None:
    ids = opened.launch("f-1", 3)
    assert len(set(ids)) == 3
    assert opened.alive() == set(ids)
    listed: list[Instance] = opened.run(opened.provider("f").list("f"))
    assert {one.market for one in listed} == {opened.market}


def test_the_same_launch_again_starts_nothing_new(opened: Opened) -> None:
    first = opened.launch("f-1", 2)
    assert opened.launch("f-1", 2) == first
    assert opened.alive() == set(first)
    assert not set(opened.launch("f-2", 1)) & set(first)


def test_ended_machines_are_gone_for_good(opened: Opened) -> None:
    ids = opened.launch("f-1", 2)
    opened.run(opened.provider("f").terminate(ids[:1]))
    opened.run(opened.provider("f").terminate([*ids[:1], "unknown"]))
    assert opened.alive() == set(ids[1:])


def test_a_fleet_sees_only_its_own_machines(opened: Opened) -> None:
    mine, other = opened.launch("f-1", 1), opened.launch("g-1", 1, fleet="g")
    assert opened.alive("f") == set(mine)
    assert opened.alive("g") == set(other)
