"""A fleet of 10,000 jobs on 500 workers, and the other seeds of `test_many_seeds`."""

import pytest

from tests.fleet.simulator.__main__ import run, schedule
from tests.fleet.simulator.fleet import Scenario


@pytest.mark.slow
def test_a_large_fleet_ends_with_one_verdict_a_job() -> None:
    violations, attempts, *_ = run(1, jobs=10_000, workers=500, slots=10)
    assert violations == []
    assert attempts < 1.25 * 10_000


@pytest.mark.slow
@pytest.mark.parametrize("first", range(121, 201, 10))
def test_ten_more_seeds_each_end_with_one_verdict_a_job(first: int) -> None:
    for seed in range(first, first + 10):
        assert run(seed, jobs=200, workers=20, slots=2)[0] == [], schedule(Scenario(seed))
