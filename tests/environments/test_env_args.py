"""`--env-arg`: whose value it is, and whether it may be."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from control_tower.environments.env_args import resolve_env_args, restore_env_args
from control_tower.errors import UsageError


class Level(BaseModel):
    level: int = 1
    store_kind: str = "none"


class Other(BaseModel):
    level: int = 5


ENVS: dict[str, Any] = {
    "s/one": SimpleNamespace(id="one", args_model=Level),
    "s/two-b": SimpleNamespace(id="two-b", args_model=Other),
    "s/plain": SimpleNamespace(id="plain"),
}


def test_values_are_read_by_the_model_and_defaults_filled_in() -> None:
    args = resolve_env_args(["store-kind=a=b", "two_b:level=7"], ENVS)
    assert args["s/one"] == Level(store_kind="a=b")
    assert args["s/two-b"] == Other(level=7)
    assert args["s/plain"] is None
    assert resolve_env_args(["s/one:level=2"], ENVS)["s/one"] == Level(level=2)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["level"], "write it as key=value"),
        (["=1"], "write it as key=value"),
        (["level="], "write it as key=value"),
        ([":level=1"], "write it as key=value"),
        (["level=1"], "write s/one:level=1 or s/two-b:level=1"),
        (["nothing=1"], "no selected environment takes 'nothing'.*s/one:store_kind"),
        (["one:lvl=1"], "has no argument 'lvl'; did you mean 'level'"),
        (["nine:level=1"], "'nine' is not selected"),
        (["plain:level=1"], "takes no arguments"),
        (["one:level=1", "s/one:level=2"], "given twice"),
        (["one:level=high"], "level of 's/one': .*integer"),
    ],
)
def test_faults_are_usage_errors_that_name_the_item(items: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_env_args(items, ENVS)


def test_recorded_arguments_come_back() -> None:
    assert restore_env_args(ENVS["s/one"], {"level": 3}) == Level(level=3)
    assert restore_env_args(ENVS["s/plain"], {}) is None
    with pytest.raises(UsageError, match="takes no arguments"):
        restore_env_args(ENVS["s/plain"], {"level": 3})
