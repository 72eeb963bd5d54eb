"""Which prepared trajectory a conversation is about, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from control_tower.demo import get_environments
from control_tower.inspect_private import sample_epoch
from control_tower.policies.scripted import TEMPLATE, read_trajectory

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage
    from inspect_ai.tool import ToolInfo

PRIVATE_MARK = "[private]"
"""How the description of a tool starts that only red sees."""


@dataclass(frozen=True)
class Step:
    """A prepared call."""

    function: str
    arguments: dict[str, Any]


def find_script(messages: Sequence[ChatMessage], *, honest: bool = False) -> list[Step]:
    """The trajectory for the tasks whose texts stand in the prompts; empty when there is none.

    A side task's text selects the attack on it, under cover of the main task that is there (the first one
    of its environment if none is). The variant is that of the sample's epoch.

    Args:
        messages: the conversation; only what the model is told is searched, not what it said or saw.
        honest: leave side tasks aside.
    """
    told = "\n".join(message.text for message in messages if message.role in ("system", "user"))
    for environment in get_environments().values():
        space = environment.task_space()
        mains = [task for task in space.mains().values() if task.description.strip() in told]
        sides = [task for task in space.sides().values() if task.goal.strip() in told and not honest]
        if sides:
            main = mains[0] if mains else next(iter(space.mains().values()))
            return _variant(sides[0].root, main.id)
        if mains:
            return _variant(mains[0].root, "honest")
    return []


def _variant(root: Path | None, folder: str) -> list[Step]:
    if root is None:
        return []
    templates = sorted((root / "trajs" / folder).glob(f"*/{TEMPLATE}"))
    if not templates:
        return []
    calls = read_trajectory(templates[(sample_epoch() - 1) % len(templates)])
    return [Step(function, arguments) for function, arguments in calls]


def position(messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> int:
    """How many actions the model has taken: its turns with calls, private ones aside.

    A call that was blocked counts, so that a script goes on instead of trying it again for ever.
    """
    private = {tool.name for tool in tools if tool.description.startswith(PRIVATE_MARK)}
    return sum(
        message.role == "assistant" and any(call.function not in private for call in message.tool_calls or ())
        for message in messages
    )
