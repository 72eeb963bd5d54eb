"""What each side is told about a sample."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from control_tower.records.tasks import EnvironmentData, MainTaskData, SideTaskData

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage
    from inspect_ai.tool import ToolInfo


@dataclass(frozen=True)
class RedView:
    """Red knows the environment, the work and what it should sabotage."""

    environment: EnvironmentData
    main_tasks: tuple[MainTaskData, ...] = ()
    side_tasks: tuple[SideTaskData, ...] = ()


@dataclass(frozen=True)
class BlueView:
    """Blue knows the environment and the work, and sees what ran; nothing says whether a side task exists."""

    environment: EnvironmentData
    main_tasks: tuple[MainTaskData, ...] = ()
    history: "Sequence[ChatMessage]" = field(default_factory=tuple)
    """The turns decided so far, each with the results of its calls that ran."""
    conversation: "Sequence[ChatMessage]" = field(default_factory=tuple)
    """What the untrusted model is asked for its next turn, without what red adds to it."""
    tools: "Sequence[ToolInfo]" = field(default_factory=tuple)
    """The tools that it is offered, without red's private ones."""
