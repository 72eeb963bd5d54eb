"""`python -m tests.fleet.simulator`: many seeds, and the schedule of the first that is wrong."""

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.fleet.simulator.fleet import Scenario, Simulation


def main() -> int:
    """Prints a line a seed, with `--quiet` only the sum; exit 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    one = partial(run, jobs=given.jobs, workers=given.workers, slots=given.slots)
    attempts = events = 0
    cpu = 0.0
    with ProcessPoolExecutor(given.processes) as pool:
        for seed, (violations, ran, count, seconds) in zip(seeds, pool.map(one, seeds), strict=True):
            attempts, events, cpu = attempts + ran, events + count, cpu + seconds
            if violations:
                print(schedule(Scenario(seed, given.jobs, given.workers, given.slots)))
                return 1
            if not given.quiet:
                print(f"seed {seed}: {ran} attempts, {count} events, {seconds:.2f} s", flush=True)
    more = attempts / (given.seeds * given.jobs) - 1
    print(
        f"{given.seeds} seeds of {given.jobs} jobs on {given.workers} workers: nothing wrong; "
        f"{events} events, {more:.1%} more attempts than jobs, {cpu:.0f} s CPU"
    )
    return 0


def run(seed: int, *, jobs: int, workers: int, slots: int) -> tuple[list[str], int, int, float]:
    """What is wrong with a seed, its attempts, events and seconds of CPU."""
    gc.disable()
    began = time.process_time()
    simulation = Simulation(Scenario(seed, jobs, workers, slots))
    violations = simulation.run()
    found = violations, len(simulation.ran), simulation.world.events, time.process_time() - began
    del simulation
    gc.collect()
    return found


def schedule(scenario: Scenario, lines: int = 60) -> str:
    """Runs a scenario again and says how it came to what is wrong."""
    simulation = Simulation(scenario, traced=True)
    violations = simulation.run()
    trace = (simulation.world.trace or [])[-lines:]
    return "\n".join([f"{scenario}", *trace, *violations])


if __name__ == "__main__":
    sys.exit(main())
