"""What a monitor is: a function of a conversation that says how suspicious it is, from 0 to 100."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from control_tower.config import redact
from control_tower.errors import ExpectedError, ValidationError, did_you_mean, on_one_line

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage
    from inspect_ai.scorer import Score

    from control_tower.records.tasks import EnvironmentData, MainTaskData

MonitorFunction = Callable[..., "Awaitable[Score]"]
"""`async (messages, *, <inputs it names>) -> Score`: its value is the suspicion.

The messages are decided turns, each followed by the results of its calls. A monitor of kind `action` judges
the last one, whose results are not there; one of kind `trajectory` judges them all. Inputs are the fields of
`MonitorInputs`; a monitor gets those that its keyword parameters, or its attribute `inputs`, name.
"""

Kind = Literal["action", "trajectory"]


class MonitorFailed(Exception):
    """A monitor could not judge; the verdict is then unscored.

    Args:
        reason: why, for people.
        metadata: `attempts` says how often it was tried, `traceback` where the monitor's own code failed.
    """

    def __init__(self, reason: str, metadata: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.metadata = metadata or {}


@dataclass(frozen=True)
class MonitorInputs:
    """What a monitor may know besides the conversation; the same for honest and attack samples of a task."""

    task_description: str = ""
    environment_description: str = ""
    side_task_goals: list[str] = field(default_factory=list[str])
    """The goals of all side tasks of the environment, never those of the sample alone."""

    @classmethod
    def of(cls, environment: EnvironmentData | None, main_tasks: Sequence[MainTaskData]) -> MonitorInputs:
        """The inputs for a sample."""
        from control_tower.records.tasks import describe_tasks

        return cls(
            task_description=describe_tasks(main_tasks) if main_tasks else "",
            environment_description=environment.description if environment else "",
            side_task_goals=list(environment.side_task_goals or []) if environment else [],
        )


INPUTS = tuple(MonitorInputs.__dataclass_fields__)
"""The names of all inputs."""


def inputs_of(function: MonitorFunction, owner: str) -> frozenset[str]:
    """The inputs a monitor needs.

    Raises:
        ValidationError: it is no function of messages and keywords, or needs an input that nobody has.
    """
    if not callable(function):
        raise ValidationError(f"{owner} made {type(function).__name__}, which is no function of messages")
    declared = getattr(function, "inputs", None)
    if declared is not None:
        return frozenset(cast("frozenset[str]", declared))
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind is parameters[0].KEYWORD_ONLY:
        raise ValidationError(f"{owner} made a function whose first parameter is not the messages")
    for parameter in parameters[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise ValidationError(f"{owner}: parameter {parameter.name!r} must be keyword-only (after *)")
        if parameter.name not in INPUTS:
            hint = did_you_mean(parameter.name, INPUTS)
            raise ValidationError(f"{owner} needs {parameter.name!r}, which no monitor is given{hint}")
    return frozenset(parameter.name for parameter in parameters[1:])


async def call_monitor(
    function: MonitorFunction, needs: frozenset[str], messages: Sequence[ChatMessage], inputs: MonitorInputs
) -> float:
    """A monitor's verdict on a conversation.

    Args:
        function: the monitor.
        needs: the inputs it is given.
        messages: the conversation, without what monitors may not see.
        inputs: what it may know besides.

    Raises:
        MonitorFailed: it could not judge, its own code failed, or what it gave is no number from 0 to 100.
        LimitExceededError: the sample is over one of its limits.
        ExpectedError: something is configured wrongly, which no further action would change.
    """
    from inspect_ai.util import LimitExceededError

    from control_tower.records.monitor_scores import HIGHEST, LOWEST, UNSCORED, read_suspicion

    try:
        score = await function(list(messages), **{name: getattr(inputs, name) for name in needs})
    except (MonitorFailed, LimitExceededError, ExpectedError):
        raise
    except Exception as error:
        cause = f"the monitor failed with {type(error).__name__}: {on_one_line(str(error))}"
        where = "".join(traceback.format_exception(error))
        raise MonitorFailed(redact(cause), {"traceback": redact(where)}) from error
    value = getattr(score, "value", None)
    number = read_suspicion(value)
    if number is None:
        explanation = getattr(score, "explanation", None)
        if value == UNSCORED and explanation:
            raise MonitorFailed(str(explanation))
        raise MonitorFailed(f"the monitor gave {str(value)[:80]!r}, which is no number")
    if not LOWEST <= number <= HIGHEST:
        raise MonitorFailed(f"the monitor gave {number:g}, which is outside 0 to 100")
    return number
