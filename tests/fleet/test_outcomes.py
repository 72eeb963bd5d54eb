"""What follows after attempts that did not end well, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from control_tower.fleet.outcomes import Again, Category, Fail, Limits, next_step

NOW = Again(0.0, safe=False, alone=False)


@pytest.mark.parametrize(
    ("history", "step"),
    [
        (["prerequisite"], Fail("prerequisite")),
        (["eval_internal"], NOW),
        (["eval_internal"] * 2, Fail("eval_internal")),
        (["eval_error"] * 2, NOW),
        (["eval_error"] * 3, Fail("eval_error")),
        (["timeout"], NOW),
        (["timeout", "timeout"], Fail("timeout")),
        (["hung", "eval_error", "timeout"], Fail("timeout")),
        (["oom_job"], Again(0.0, safe=False, alone=True)),
        (["sandbox"], Again(15.0, safe=False, alone=False)),
        (["sandbox", "sandbox"], Again(30.0, safe=True, alone=False)),
        (["sandbox"] * 4, Fail("sandbox")),
        (["network"] * 6, Fail("network")),
        (["rate_limit"], Again(60.0, safe=False, alone=False)),
        (["rate_limit"] * 4, Again(480.0, safe=False, alone=False)),
        (["rate_limit"] * 10, Again(1800.0, safe=False, alone=False)),
        (["rate_limit"] * 17, Fail("rate_limit")),
        (["preempted"], NOW),
        (["preempted"] * 2, Again(0.0, safe=True, alone=False)),
        (["preempted"] * 9, Again(0.0, safe=True, alone=False)),
        (["preempted"] * 10, Fail("infra")),
        (["worker_died"] * 3, Again(0.0, safe=True, alone=True)),
        (["worker_died"] * 4, Fail("worker_killer")),
        (["worker_lost"] * 4, Again(0.0, safe=True, alone=False)),
        (["preempted", "eval_error", "preempted", "eval_error"], Again(0.0, safe=True, alone=False)),
        (["cancelled"] * 50, NOW),
        (["quota"] * 50, NOW),
    ],
)
def test_the_step_after_a_history(history: list[Category], step: Again | Fail) -> None:
    assert next_step(history, Limits()) == step


def test_a_service_may_ask_for_more_time_but_not_for_days() -> None:
    assert next_step(["rate_limit"], Limits(), 300.0) == Again(300.0, safe=False, alone=False)
    assert next_step(["rate_limit"], Limits(), 1e6) == Again(3600.0, safe=False, alone=False)


@given(some.integers(0, 9).flatmap(lambda lost: some.permutations(["preempted"] * lost + ["eval_error"] * 2)))
def test_lost_machines_never_use_up_the_failures_of_a_job(history: list[Category]) -> None:
    assert isinstance(next_step(history, Limits()), Again)
    assert next_step([*history, "eval_error"], Limits()) == Fail("eval_error")
