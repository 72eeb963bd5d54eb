"""What a user may ask of a fleet, and what is refused."""

import pytest

from control_tower.errors import StateError, UsageError
from control_tower.fleet.settings import FleetSettings, check_budget, parse_settings


def test_keys_are_read_by_their_types() -> None:
    items = ["workers=4", "slots=3", "budget_usd=1.5", "idle-timeout=60", "new_fleet=true", "detach=yes"]
    assert parse_settings(items) == FleetSettings(
        workers=4, slots=3, budget_usd=1.5, idle_timeout=60, new_fleet=True, detach=True
    )


def test_names_that_fleets_have_elsewhere_mean_the_same() -> None:
    items = ["max_workers=4", "concurrency_per_worker=3"]
    assert parse_settings(items) == FleetSettings(workers=4, slots=3)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["wokers=4"], "no argument 'wokers'; did you mean 'workers'"),
        (["workers=4", "max_workers=3"], "'max_workers' means 'workers', which is given as well"),
        (["workers=4", "workers=3"], "'workers' is given twice"),
        (["workers"], "key=value"),
        (["workers=many"], "'workers' is 'many'"),
        (["workers=0"], "'workers' is '0'"),
        (["initial_workers=3"], "initial_workers=3 is more than workers=2"),
        (["budget_usd=5", "budget_hard_usd=4"], "budget_hard_usd=4 is less than budget_usd=5"),
        (["budget_usd=0"], "'budget_usd' is '0'"),
        (["budget_usd=nan"], "'budget_usd' is 'nan'"),
        (["budget_usd=inf"], "'budget_usd' is 'inf'"),
        (["ttl=inf"], "'ttl' is 'inf'"),
        (["spot=true"], "spot: is for fleets on EC2"),
        (["instance_type=c7i.4xlarge"], "instance_type: is for fleets on EC2"),
        (["estimate=true"], "--smoke"),
    ],
)
def test_a_mistake_is_refused_in_one_line(items: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_settings(items)
    assert message in str(error.value)
    assert "--fleet-arg" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_budget_needs_the_price_of_each_model() -> None:
    with pytest.raises(StateError, match=r"budget_usd needs the price of some/model.*budget_unpriced=ok"):
        check_budget(parse_settings(["budget_usd=1"]), ["some/model"])
    check_budget(parse_settings(["budget_usd=1", "budget_unpriced=ok"]), ["some/model"])
    check_budget(parse_settings(["budget_usd=1"]), [])
    check_budget(parse_settings([]), ["some/model"])
