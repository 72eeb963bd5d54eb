"""Two hundred fleets of 200 jobs with every fault; those after 120 are in `test_large_fleet`."""

import pytest

from tests.fleet.simulator.__main__ import run, schedule
from tests.fleet.simulator.fleet import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 121, 10))
def test_ten_seeds_each_end_with_one_verdict_a_job(first: int) -> None:
    for seed in range(first, first + 10):
        assert run(seed, jobs=200, workers=20, slots=2)[0] == [], schedule(Scenario(seed))
