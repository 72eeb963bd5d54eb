"""What a fleet cost: for results, for results of later attempts, for attempts that came to nothing."""

import pytest

from control_tower.errors import StateError
from control_tower.fleet.cost import FleetCost, Split, fleet_cost
from control_tower.fleet.documents import Claim, Ending
from control_tower.fleet.keys import Keys
from control_tower.fleet.plan import FleetFile, FleetPlan, Job, publish
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.verdicts import verdict_meta
from control_tower.models.cost import Cost
from tests.fleet.memory import MemoryStore
from tests.fleet.played import wait

KEYS = Keys("f")
JOBS = (
    Job(id="a", sample="e:m", epoch=1, task="e/m", attack=False),
    Job(id="b", sample="e:m:s", epoch=1, task="e/m+s", attack=True, side="s"),
    Job(id="c", sample="e:m:t", epoch=1, task="e/m+t", attack=True, side="t"),
)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> MemoryStore:
    """Of a planned fleet in which nothing happened."""
    header = tmp_path_factory.mktemp("header") / "header.eval"
    header.write_bytes(b"")
    config = {"honest_policy": {"name": "worker"}, "attack_policy": {"name": "saboteur"}}
    file = FleetFile(
        fleet="f",
        created="",
        config=config,
        command=None,
        settings=FleetSettings(),
        jobs=len(JOBS),
        folder="",
        log_dir="",
    )
    store = MemoryStore()
    wait(publish(FleetPlan(file, JOBS), header, store))
    return store


def claim(store: MemoryStore, job: str, n: int = 1) -> None:
    """An attempt is begun."""
    text = Claim(worker="w", boot="b", nonce="n").text()
    wait(store.create(KEYS.claim(job, n), text.encode()))


def result(store: MemoryStore, job: str, usd: float | None, n: int = 1, *, failed: bool = False) -> None:
    """An attempt becomes the verdict."""
    claim(store, job, n)
    meta = verdict_meta("failed" if failed else "completed", n, "w", "n", usd, b"")
    wait(store.create(KEYS.verdict(job), b"", meta))


def ended(store: MemoryStore, job: str, usd: float | None, n: int = 1) -> None:
    """An attempt fails."""
    claim(store, job, n)
    ending = Ending(job=job, n=n, worker="w", boot="b", outcome="failed", category="eval_error", usd=usd)
    wait(store.create(KEYS.outcome(job, n), ending.text().encode()))


def cost(store: MemoryStore) -> FleetCost:
    """What it cost."""
    return wait(fleet_cost(store, "f"))


def test_nothing_was_spent_where_nothing_happened(store: MemoryStore) -> None:
    found = cost(store)
    assert found.tokens.total == Cost()
    assert (found.attempts, found.unpriced, found.unaccounted) == (0, 0, 0)


def test_it_is_split_by_what_came_of_each_attempt(store: MemoryStore) -> None:
    result(store, "a", 1.0)
    ended(store, "b", 0.25)
    result(store, "b", 0.5, 2)
    ended(store, "c", 4.0)
    result(store, "c", 4.0, failed=True)
    found = cost(store)
    assert (found.accepted, found.repeated, found.wasted) == (Cost(1.0), Cost(0.5), Cost(4.25))
    assert found.attempts == 4
    assert found.by_job["b"] == Split(repeated=Cost(0.5), wasted=Cost(0.25))
    assert {name: split.total.usd for name, split in found.by_policy.items()} == {
        "worker": 1.0,
        "saboteur": 4.75,
    }
    assert {name: split.total.usd for name, split in found.by_side_task.items()} == {
        "none": 1.0,
        "s": 0.75,
        "t": 4.0,
    }


def test_an_attempt_that_took_the_place_of_a_failed_verdict_is_counted_once(store: MemoryStore) -> None:
    ended(store, "a", 2.0, 2)
    result(store, "a", 2.0, 2)
    found = cost(store)
    assert (found.repeated, found.wasted) == (Cost(2.0), Cost())


def test_what_has_no_price_is_not_free(store: MemoryStore) -> None:
    result(store, "a", None)
    result(store, "b", 1.0)
    ended(store, "c", None)
    found = cost(store)
    assert found.accepted == Cost(1.0, incomplete=True)
    assert found.wasted == Cost(None, incomplete=True)
    assert found.unpriced == 2


def test_what_lost_attempts_spent_is_not_known(store: MemoryStore) -> None:
    claim(store, "a", 1)
    result(store, "a", 1.0, 2)
    found = cost(store)
    assert (found.attempts, found.unaccounted) == (2, 1)
    assert found.wasted == Cost()


def test_machines_here_have_no_price(store: MemoryStore) -> None:
    assert cost(store).machines == Cost()


def test_there_must_be_such_a_fleet(store: MemoryStore) -> None:
    with pytest.raises(StateError, match="there is no fleet 'g'"):
        wait(fleet_cost(store, "g"))
