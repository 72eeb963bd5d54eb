"""The real controller and workers in virtual time, with faults by a seed: nothing lost or counted twice."""

import subprocess
import sys
from dataclasses import replace

import pytest

from control_tower.fleet.documents import Asked
from tests.fleet.simulator.__main__ import schedule
from tests.fleet.simulator.faults import NONE, Faults
from tests.fleet.simulator.fleet import Scenario, Simulation
from tests.fleet.simulator.mutants import MUTANTS
from tests.fleet.simulator.world import Machine

SMALL = Scenario(0, jobs=60, workers=8)
HOURS_LESS = 7200.0


@pytest.mark.parametrize("seed", range(1, 5))
def test_with_every_fault_each_job_gets_one_verdict(seed: int) -> None:
    scenario = replace(SMALL, seed=seed)
    assert Simulation(scenario).run() == [], schedule(scenario)


def test_without_faults_only_failures_are_repeated() -> None:
    simulation = Simulation(replace(SMALL, seed=1, faults=NONE))
    assert simulation.run() == []
    failed = sum(finish is None or finish.outcome != "completed" for finish in simulation.ran.values())
    unfinished = sum(simulation.verdict(job).meta["ct-status"] == "failed" for job in simulation.jobs)
    assert len(simulation.ran) == len(simulation.jobs) + failed - unfinished


def test_slots_are_not_idle_while_there_is_work() -> None:
    """Four workers with two slots and long jobs: what is not running is starting or ending."""
    simulation = Simulation(Scenario(3, jobs=80, workers=4, failing=0, doomed=0, faults=NONE))
    assert simulation.run() == []
    worked = sum(finish.duration_s for finish in simulation.ran.values() if finish)
    assert worked / 8 > 0.7 * simulation.world.time


@pytest.mark.parametrize("times", [((900.0, 1),), ((900.0, 1), (905.0, 2))])
def test_an_interrupted_fleet_leaves_no_machine_and_goes_on_later(
    times: tuple[tuple[float, int], ...],
) -> None:
    scenario = replace(SMALL, seed=5, interrupt=times, faults=NONE)
    simulation = Simulation(scenario)
    assert simulation.run() == []
    assert simulation.code == 130
    done = set(simulation.written)
    assert 0 < len(done) < 60
    assert not any(machine.alive for _, machine in simulation.machines.machines.values())
    ran = dict(simulation.ran)
    assert simulation.run_again() == []
    assert len(simulation.written) == 60
    again = {job for job, _ in simulation.ran.keys() - ran.keys()}
    assert not again & done


def test_failed_jobs_are_tried_anew_when_asked_and_the_others_are_left_alone() -> None:
    """Of four doomed jobs two complete the second time; the first seal stays as it was."""
    simulation = Simulation(replace(SMALL, seed=17, failing=0, doomed=0.1, faults=NONE))
    assert simulation.run() == []
    first = _verdicts(simulation)
    failed = {job for job, (status, _) in first.items() if status == "failed"}
    assert simulation.code == 1 and len(failed) == 4
    simulation.ask(Asked(kind="resume", retry=("timeout",)))
    assert simulation.run_again() == []
    assert _verdicts(simulation) == first and simulation.seal == 1
    simulation.ask(Asked(kind="resume", retry=("failed",)))
    assert simulation.run_again() == []
    assert simulation.seal == 2
    second = _verdicts(simulation)
    assert {job for job in first if first[job] != second[job]} == failed
    assert sorted(second[job] for job in failed) == 2 * [("completed", 4)] + 2 * [("failed", 6)]
    lines = simulation.events()
    assert sum(line["type"] == "job_done" for line in lines) == 60
    assert {
        line["job_id"] for line in lines if line["type"] == "correction" and "sample" not in line
    } == failed


def _verdicts(simulation: Simulation) -> dict[str, tuple[str, int]]:
    found = {job: simulation.verdict(job).meta for job in simulation.jobs}
    return {job: (meta["ct-status"], int(meta["ct-attempt"])) for job, meta in found.items()}


def test_a_seed_that_is_wrong_prints_its_schedule_and_is_wrong_again() -> None:
    scenario = replace(SMALL, seed=1)
    with MUTANTS["ack_before_claim"]():
        (wrong,) = Simulation(scenario).run()
        printed = schedule(scenario)
    assert wrong in printed
    assert "WRONG" in printed and "ack work" in printed
    assert str(scenario) in printed


_SCENARIOS = {
    "silence_means_nothing": replace(SMALL, faults=Faults(reply_lost=0.2)),
    "no_second_offer": replace(SMALL, faults=Faults(crash=0, rival=0, message_lost=0.05)),
    "reopened_jobs_are_not_run": replace(SMALL, doomed=0.1, faults=replace(NONE, retry=1.0)),
    "reopening_is_forgotten_on_restart": replace(
        SMALL, doomed=0.2, faults=Faults(kill=0, cut=0, pause=0, rival=0, retry=1.0)
    ),
    "asked_counts_as_done_before_it_is": replace(
        SMALL, doomed=0.2, faults=replace(NONE, until=3000.0, retry=1.0)
    ),
    "late_success_is_dropped": Scenario(
        0, 40, 8, duration=100, first_longer=8, failing=0.9, faults=Faults(cut=600, crash=0, rival=0)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    for seed in range(1, 6):
        scenario = replace(_SCENARIOS.get(name, SMALL), seed=seed, patience=HOURS_LESS)
        with MUTANTS[name]():
            if Simulation(scenario).run():
                break
    else:
        pytest.fail("five seeds found nothing wrong")


@pytest.mark.parametrize("name", _SCENARIOS)
def test_the_scenarios_for_single_rules_are_right_themselves(name: str) -> None:
    assert Simulation(replace(_SCENARIOS[name], seed=1, patience=HOURS_LESS)).run() == []


TINY = Scenario(
    7, jobs=3, workers=2, slots=1, duration=30, failing=0, doomed=0, faults=replace(NONE, until=1.0)
)


def _killed_at(step: int, victim: str) -> tuple[Simulation, bool]:
    """A small fleet in which a machine dies before its n-th step; a controller comes back at once."""
    simulation, killed = Simulation(TINY), False

    def before(machine: Machine) -> None:
        nonlocal killed
        if not killed and machine.name == victim and machine.steps == step:
            killed = True
            if victim == "controller":
                simulation.crash_controller(machine)
            else:
                machine.kill()

    simulation.world.before_step = before
    assert simulation.run() == [], f"{victim} killed before step {step}"
    return simulation, killed


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["controller", "i-0"])
def test_death_between_any_two_steps_loses_nothing(victim: str) -> None:
    step, killed = 0, True
    while killed and step < 400:
        _, killed = _killed_at(step, victim)
        step += 1
    assert step > 20


@pytest.mark.parametrize("victim", ["controller", "i-0"])
def test_death_at_some_steps_loses_nothing(victim: str) -> None:
    for step in range(0, 60, 6):
        _killed_at(step, victim)


@pytest.mark.slow
def test_a_seed_is_the_same_in_another_process() -> None:
    lines = {
        subprocess.run(
            [sys.executable, "-m", "tests.fleet.simulator", "--seeds=1", "--jobs=40", "--workers=6"],
            env={"PYTHONHASHSEED": hashes, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.splitlines()[0]
        .rsplit(",", 1)[0]
        for hashes in ("1", "2")
    }
    assert len(lines) == 1
