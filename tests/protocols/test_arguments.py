"""Arguments of protocols: what could never work is refused when the protocol is made, with the way out."""

import math
from typing import Any

import pytest

from control_tower.errors import UsageError
from control_tower.monitors.config import parse_monitors
from control_tower.protocols.defer_to_resample import defer_to_resample_protocol
from control_tower.protocols.defer_to_trusted import defer_to_trusted_protocol
from control_tower.protocols.registry import protocols
from control_tower.protocols.trusted_editing import trusted_editing_protocol
from control_tower.protocols.trusted_monitoring import trusted_monitoring_protocol

MONITORED = ["trusted-monitoring", "defer-to-trusted", "trusted-editing", "defer-to-resample"]


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("trusted-monitoring", {"sus_threshold": "101"}, "from 0 to 100"),
        ("trusted-monitoring", {"sus_threshold": "-0.5"}, "from 0 to 100"),
        ("trusted-monitoring", {"sus_threshold": "nan"}, "finite"),
        ("trusted-monitoring", {"sus_threshold": "50", "blocks": "-1"}, "blocks is -1"),
        ("trusted-monitoring", {"blocks": "1"}, "add sus_threshold"),
        ("defer-to-trusted", {"defer_threshold": "500"}, "from 0 to 100"),
        ("defer-to-trusted", {"audit_threshold": "inf"}, "finite"),
        ("defer-to-trusted", {"defer_threshold": "60", "audit_threshold": "50"}, "higher one"),
        ("defer-to-trusted", {"defer_threshold": "60", "audit_threshold": "60"}, "higher one"),
        ("trusted-editing", {"edit_threshold": "60", "audit_threshold": "10"}, "edit_threshold"),
        ("defer-to-resample", {"drafts": "1"}, "at least 2"),
        ("defer-to-resample", {"drafts": "0"}, "at least 2"),
        ("defer-to-resample", {"drafts": "-3"}, "at least 2"),
        *((name, {"block_message": " "}, "block_message is empty") for name in MONITORED),
        *((name, {"monitors": "[]"}, "name at least one") for name in MONITORED),
        *((name, {"monitors": "trajectory"}, "ct run monitor") for name in MONITORED),
        *((name, {"on_unscored": "ignore"}, "'audit' or 'run'") for name in MONITORED),
        *((name, {"harness": "{kind: inspect_swe, agent: x}"}, "leave harness out") for name in MONITORED),
        ("null-blue-team", {"harness": "{kind: inspect_swe}"}, "leave harness out"),
        ("block-all", {"harness": "{kind: inspect_swe}"}, "leave harness out"),
    ],
)
def test_what_cannot_work_is_refused(name: str, args: dict[str, str], said: str) -> None:
    given = {"monitors": "[rules]", **args} if name in MONITORED else args
    with pytest.raises(UsageError, match=said):
        protocols.get(name).make(given)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("trusted-monitoring", {}),
        ("trusted-monitoring", {"sus_threshold": "0", "blocks": "3", "combine": "mean"}),
        ("trusted-monitoring", {"sus_threshold": "100", "harness": "{kind: null}"}),
        ("defer-to-trusted", {"audit_threshold": "0"}),
        ("defer-to-trusted", {"defer_threshold": "99.5", "audit_threshold": "100"}),
        ("trusted-editing", {"edit_threshold": "0", "harness": "null"}),
        ("defer-to-resample", {"drafts": "2", "on_unscored": "audit"}),
    ],
)
def test_what_can_work_is_made(name: str, args: dict[str, str]) -> None:
    assert protocols.get(name).make({"monitors": "[rules]", **args})


@pytest.mark.parametrize("name", MONITORED)
def test_monitors_must_be_named(name: str) -> None:
    with pytest.raises(UsageError, match="'monitors' is missing"):
        protocols.get(name).make({})


def test_values_given_in_code_are_checked_too() -> None:
    monitors = parse_monitors(["rules"])
    refused: list[tuple[Any, dict[str, Any]]] = [
        (trusted_monitoring_protocol, {"sus_threshold": math.nan}),
        (defer_to_trusted_protocol, {"defer_threshold": math.inf}),
        (trusted_editing_protocol, {"audit_threshold": -1.0}),
        (defer_to_resample_protocol, {"drafts": 1}),
    ]
    for factory, args in refused:
        with pytest.raises(UsageError):
            factory(monitors, **args)
    with pytest.raises(UsageError, match="name at least one"):
        trusted_monitoring_protocol(())


def test_the_trusted_models_role_is_declared() -> None:
    asked = {entry.name: entry.metadata.get("roles", ()) for entry in protocols.entries()}
    assert asked["ct/defer-to-trusted"] == ("trusted",)
    assert asked["ct/trusted-editing"] == ("trusted",)
    assert asked["ct/trusted-monitoring"] == ()
