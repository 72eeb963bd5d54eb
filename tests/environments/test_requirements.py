"""Environment variables that must be there before a run."""

from types import SimpleNamespace

import pytest

from control_tower.environments.environment import EnvDocs
from control_tower.environments.internet_simulator import CustomUpstreamProxy, InternetSimulatorConfig
from control_tower.environments.requirements import (
    RequiredEnvAnyOf,
    RequiredEnvVar,
    check_requirements,
    is_set,
    requirements_of,
)
from control_tower.errors import StateError

DOCS = EnvDocs(
    required_env_vars=[RequiredEnvVar("TOKEN", "for the store", "ask the store")],
    required_env_any_of=[RequiredEnvAnyOf(["LEFT", "RIGHT"], "either")],
)
SIMULATED = SimpleNamespace(
    internet_simulator=InternetSimulatorConfig(
        upstream_proxies=[
            "anthropic",
            CustomUpstreamProxy(host="api.own.test", api_key_env="OWN_KEY", auth_header="x"),
        ]
    )
)


@pytest.mark.parametrize("value", [None, "", "  ", "<your key>", " <x> "])
def test_blank_and_placeholder_values_are_not_set(value: str | None) -> None:
    assert not is_set(value)
    assert is_set("a<b>")


def test_one_message_lists_everything_by_environment() -> None:
    needs = [
        requirements_of("s/one", object(), DOCS),
        requirements_of("s/two", SIMULATED, EnvDocs(), internet_simulator=True),
    ]
    with pytest.raises(StateError) as raised:
        check_requirements(needs, {"TOKEN": "<token>", "ANTHROPIC_API_KEY": "k"})
    message = str(raised.value)
    assert "s/one:\n  TOKEN - for the store - ask the store\n  one of LEFT, RIGHT - either" in message
    assert "OWN_KEY" in message and "ANTHROPIC" not in message
    assert ".env" in message


def test_nothing_is_missing() -> None:
    needs = [requirements_of("s/one", object(), DOCS), requirements_of("s/two", SIMULATED, EnvDocs())]
    check_requirements(needs, {"TOKEN": "t", "RIGHT": "r"})
