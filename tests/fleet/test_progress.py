"""How far a fleet is, in one line; numbers worked out by hand."""

from control_tower.fleet.facts import Decided, Ended, Interrupted, Listed, Read
from control_tower.fleet.ports import Instance
from control_tower.fleet.progress import Progress, progress
from tests.fleet.test_reconcile import Fleet, ending


def test_the_line_says_what_is_done_runs_and_costs() -> None:
    shown = Progress(412, 1000, 405, 7, 96, 3, 12, 9, 41.2, 0, 200.0, (1080.0, 1100.0))
    assert shown.line() == (
        "[412/1000] 405 done, 7 failed, 96 running, 3 retrying | "
        "12 workers (9 spot) | $41.20 of $200 | ~18m left"
    )


def test_what_has_no_price_is_not_shown_as_nothing() -> None:
    assert "| $— |" in Progress(usd=None, unpriced=3, mode="pause", why="asked for").line()
    assert Progress(usd=1.0, unpriced=3).line().endswith("| $1.00 and 3 unpriced")


def test_a_range_is_a_range() -> None:
    assert Progress(1, 2, seconds_left=(50.0, 80.0)).line().endswith("| ~50–80s left")
    assert Progress(1, 2, seconds_left=(600.0, 1500.0)).line().endswith("| ~10–25m left")


def test_jobs_and_workers_are_counted() -> None:
    fleet = Fleet(*"abcdef", budget=50.0)
    fleet.beat("i-1", ("a", 1), ("b", 1))
    fleet.tell(Listed([Instance("i-1", "spot", gone=False)]))
    fleet.fail("c", 1, "rate_limit")
    fleet.tell(
        Decided("d", "completed", 1, "i-1", "e1", usd=2.0), Decided("e", "failed", 3, "i-1", "e2", usd=0.5)
    )
    now = progress(fleet.state)
    assert (now.done, now.total, now.completed, now.failed) == (2, 6, 1, 1)
    assert (now.running, now.retrying, now.workers, now.spot) == (2, 1, 1, 1)
    assert (now.usd, now.unpriced, now.budget) == (3.5, 0, 50.0)
    fleet.beat("i-1", ("c", 2))
    assert progress(fleet.state).retrying == 0
    fleet.tell(Interrupted(1))
    assert progress(fleet.state).line().endswith("| 1 worker (1 spot) | $3.50 of $50 | draining: interrupted")


def test_the_time_left_is_known_after_ten_verdicts() -> None:
    """Ten of thirty jobs took 100 s each; the others take 1,000 s in two slots, the last 100 s more."""
    fleet = Fleet(*(f"{n}" for n in range(30)))
    fleet.beat("i-1")
    for n in range(10):
        assert progress(fleet.state).seconds_left is None
        took = ending(f"{n}", 1, "eval_error").model_copy(update={"duration_s": 100.0})
        fleet.tell(Ended(took), Decided(f"{n}", "failed", 1, "i-1", f"e{n}"), Read(f"{n}", 1, ()))
    assert progress(fleet.state).seconds_left == (1000.0, 1100.0)
    fleet.fail("29", 1, "quota", text="no credit")
    assert "| paused: a model's service says that the account is exhausted" in progress(fleet.state).line()
