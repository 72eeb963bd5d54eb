"""What users ask of a fleet that runs, and how workers are told to leave: in virtual time, without faults."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from control_tower.fleet.documents import Asked, Lease
from control_tower.fleet.keys import Keys
from control_tower.fleet.lease import LeaseKeeper
from control_tower.fleet.outside import Outside
from control_tower.fleet.standing import ask, read_standing
from control_tower.fleet.system_clock import SystemClock
from tests.fleet.memory import MemoryStore
from tests.fleet.simulator.faults import NONE
from tests.fleet.simulator.fleet import KEYS, Scenario, SimRunner, Simulation

CALM = Scenario(5, jobs=60, workers=8, failing=0, doomed=0, faults=NONE)


def simulated(scenario: Scenario, at: float, what: Callable[[Simulation], Any]) -> Simulation:
    """A fleet to which something happens, run to its end."""
    simulation = Simulation(scenario)
    simulation.world.at(at, what, simulation)
    assert simulation.run() == []
    return simulation


def living(simulation: Simulation) -> int:
    return sum(machine.alive for _, machine in simulation.machines.machines.values())


@pytest.mark.parametrize("kind", ["drain", "stop"])
def test_a_fleet_that_is_asked_to_leave_goes_on_with_the_next_controller(kind: Any) -> None:
    simulation = simulated(CALM, 900.0, lambda fleet: fleet.ask(Asked(kind=kind)))
    assert simulation.code == 130 and 0 < len(simulation.written) < 60
    assert simulation.run_again() == []
    assert simulation.code == 0 and len(simulation.written) == 60


def test_fewer_workers_are_asked_for_and_stay_fewer_after_a_restart() -> None:
    seen: list[int] = []

    def few(simulation: Simulation) -> None:
        seen.append(living(simulation))
        simulation.ask(Asked(kind="set", workers=1))
        simulation.world.at(900.0, lambda: seen.append(living(simulation)))
        simulation.world.at(901.0, lambda: simulation.crash_controller(simulation.controllers[0][0]))
        simulation.world.at(1200.0, lambda: seen.append(living(simulation)))

    simulated(CALM, 300.0, few)
    assert seen[0] > 1 and seen[1:] == [1, 1]


def test_a_larger_budget_lets_a_paused_fleet_go_on() -> None:
    simulation = Simulation(replace(CALM, budget=0.5))
    simulation.world.at(3000.0, simulation.ask, Asked(kind="set", budget_usd=100.0))
    assert simulation.run() == []
    kinds = [line["type"] for line in simulation.events() if line["type"] in ("pause", "budget", "resume")]
    assert kinds == ["budget", "pause", "resume"]


def test_past_the_hard_budget_what_runs_is_ended_and_begins_again_with_more_money() -> None:
    simulation = Simulation(replace(CALM, hard_budget=0.25))
    simulation.world.at(3000.0, simulation.ask, Asked(kind="set", budget_hard_usd=100.0))
    assert simulation.run() == []
    events = simulation.events()
    kinds = [line["type"] for line in events if line["type"] in ("pause", "budget", "resume")]
    assert kinds == ["budget", "pause", "budget", "resume"]
    ended = [line for line in events if line.get("failure_category") == "budget"]
    assert ended and {(line["type"], line["outcome"]) for line in ended} == {("attempt_done", "cancelled")}
    assert len(simulation.written) == 60


def test_a_fleet_that_is_left_goes_on_and_is_found_again() -> None:
    simulation = Simulation(CALM)
    simulation.world.at(300.0, simulation.detach)
    assert simulation.run() == []
    written = len(simulation.written)
    assert simulation.code == 0 and simulation.seal == 0 and living(simulation) > 0 and written < 60
    simulation.world.run(lambda: False, simulation.world.time + 600)
    assert len(simulation.written) > written
    assert simulation.run_again() == []
    assert simulation.code == 0 and len(simulation.written) == 60


def test_a_worker_that_is_stopped_gives_back_what_it_ran() -> None:
    held: list[tuple[str, int]] = []

    def stop(simulation: Simulation) -> None:
        held.extend(simulation.workers["i-0"].held)
        simulation.workers["i-0"].stop()
        simulation.world.at(
            60.0, lambda: held.append(("alive", simulation.machines.machines["i-0"][1].alive))
        )

    simulation = simulated(CALM, 300.0, stop)
    assert held.pop() == ("alive", False)
    attempts = simulation.store.folder(KEYS.attempts)
    assert held and {json.loads(attempts[KEYS.outcome(*key)].body)["category"] for key in held} == {
        "preempted"
    }
    assert {key for key in simulation.ran if key[1] > 1} == {(job, 2) for job, _ in held}


def test_a_worker_that_is_to_leave_finishes_what_it_runs() -> None:
    simulation = simulated(CALM, 300.0, lambda fleet: fleet.workers["i-0"].leave())
    assert not [key for key in simulation.ran if key[1] > 1]


def test_a_worker_begins_with_ten_and_runs_more_while_all_goes_well() -> None:
    most: list[int] = []

    def count(simulation: Simulation) -> None:
        most.append(len(simulation.workers["i-0"].held))

    simulation = Simulation(replace(CALM, workers=1, slots=16, jobs=80))
    for at in range(100, 2000, 10):
        simulation.world.at(at, count, simulation)
    assert simulation.run() == []
    assert max(most[:3]) == 10 and max(most) == 16


def test_a_worker_whose_services_refuse_runs_less() -> None:
    most: list[int] = []
    simulation = Simulation(replace(CALM, workers=1, slots=8, jobs=40))
    simulation.world.at(1500.0, lambda: most.append(len(simulation.workers["i-0"].held)))
    with patch.object(SimRunner, "backoff", lambda _: 5):
        assert simulation.run() == []
    assert most[0] <= 2


def test_one_worker_alone_also_tries_what_another_had_better_try() -> None:
    scenario = replace(CALM, workers=1, jobs=10, failing=0.4)
    assert Simulation(scenario).run() == []


def _outside(store: MemoryStore) -> Outside:
    clock: Any = SystemClock()
    nothing: Any = None
    return Outside(Keys("f"), store, nothing, nothing, nothing, clock, nothing, lambda: "n")


def test_the_lease_of_a_controller_that_is_surely_gone_is_taken_at_once() -> None:
    async def run() -> str:
        store = MemoryStore()
        await LeaseKeeper(_outside(store), "first").acquire(lambda: False)
        second = LeaseKeeper(_outside(store), "second", lambda owner: owner == "first")
        await asyncio.wait_for(second.acquire(lambda: False), 5)
        found = await store.get(Keys("f").lease)
        assert found
        return Lease.read(found.body).owner

    assert asyncio.run(run()) == "second n"


def test_what_cannot_be_read_is_said_and_counts_as_absent() -> None:
    async def run() -> list[str]:
        store, keys, said = MemoryStore(), Keys("f"), list[str]()
        await store.create(keys.control, b"{")
        await store.create(keys.ask(1), b"nonsense")
        assert await ask(store, keys, Asked(kind="set", workers=3)) == 2
        standing = await read_standing(store, keys, said.append)
        assert (standing.control, list(standing.asked), standing.sealed) == (None, [2], False)
        return said

    assert [text.partition(":")[0] for text in asyncio.run(run())] == ["f/control.json", "f/asked/1.json"]
