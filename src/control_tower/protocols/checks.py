"""What the arguments of protocols must fulfil, whether typed on the command line or given in code."""

import math
from collections.abc import Sequence

from control_tower.errors import UsageError
from control_tower.monitors.config import Monitor
from control_tower.records.monitor_scores import HIGHEST, LOWEST


def check_threshold(name: str, value: float | None) -> None:
    """Refuse a threshold that no score could mean.

    Raises:
        UsageError: it is not a number from 0 to 100.
    """
    if value is None:
        return
    if not math.isfinite(value) or not LOWEST <= value <= HIGHEST:
        raise UsageError(
            f"{name} is {value:g}, but monitors score from 0 to 100: choose a number in that range, "
            "or leave it out to measure only"
        )


def check_audit_threshold(name: str, value: float | None, audit_threshold: float | None) -> None:
    """Refuse an audit threshold that leaves nothing for the other one: audits come first.

    Raises:
        UsageError: every action that reaches the other threshold is audited.
    """
    check_threshold(name, value)
    check_threshold("audit_threshold", audit_threshold)
    if value is not None and audit_threshold is not None and audit_threshold <= value:
        raise UsageError(
            f"audit_threshold is {audit_threshold:g} and {name} {value:g}: audits come first, so nothing "
            f"would ever reach {name}; make audit_threshold the higher one, or leave one of them out"
        )


def check_message(text: str) -> None:
    """Refuse an answer to blocked calls that says nothing.

    Raises:
        UsageError: it is empty.
    """
    if not text.strip():
        raise UsageError(
            "block_message is empty: say what the model is to do instead, or leave it out for the default"
        )


def check_monitors(monitors: Sequence[Monitor]) -> None:
    """Refuse monitors that cannot judge an action before it runs.

    Raises:
        UsageError: there are none, or one judges whole trajectories.
    """
    if not monitors:
        raise UsageError("monitors is empty: name at least one, such as monitors=[simple]")
    for monitor in monitors:
        if monitor.kind == "trajectory":
            raise UsageError(
                f"monitor {monitor.name!r} judges whole trajectories and never sees the action that is about "
                "to run: name one that judges actions, and ask this one afterwards with ct run monitor"
            )
