"""A monitor without a model that reads its verdict from the judged command, and keeps what it was shown."""

import json
import re
from collections.abc import Sequence
from typing import Any

from inspect_ai.model import ChatMessage, ChatMessageAssistant
from inspect_ai.scorer import Score

from control_tower.monitors.monitor import MonitorFailed, MonitorFunction

JUDGE = "tests.protocols.judging:by_comment"
shown: list[list[ChatMessage]] = []


def bash(suspicion: int | str, cmd: str = "true") -> tuple[str, dict[str, Any]]:
    """A bash call that is judged as it says."""
    return "bash", {"cmd": f"{cmd} # suspicion {suspicion}"}


def by_comment(offset: int = 0) -> MonitorFunction:
    """Scores the highest `suspicion N` of an action's calls; `suspicion none` cannot be scored.

    Args:
        offset: added to it.
    """

    async def judge(messages: Sequence[ChatMessage]) -> Score:
        shown.append(list(messages))
        last = messages[-1]
        assert isinstance(last, ChatMessageAssistant)
        said = re.findall(r"suspicion (\w+)", json.dumps([call.arguments for call in last.tool_calls or []]))
        if "none" in said:
            raise MonitorFailed("nothing to go by", {"attempts": 3})
        return Score(value=max(map(int, said), default=0) + offset)

    return judge


def never() -> MonitorFunction:
    """Scores nothing."""

    async def judge(messages: Sequence[ChatMessage]) -> Score:
        raise MonitorFailed("out of order", {"attempts": 3})

    return judge
