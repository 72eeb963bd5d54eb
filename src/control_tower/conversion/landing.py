"""When a live side task of an old log landed: at red's first passing test of it, else at the last action."""

from __future__ import annotations

import math
from typing import Any, cast

from control_tower.logs.actions import Transcript
from control_tower.logs.actions import last_action_ran as last_ran
from control_tower.logs.events import resolved, tool_calls
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.tool_names import bare_name
from control_tower.records.scores import UnreadableVerdict, read_verdict

_TEST = "run_side_task_test"
_SAYS = "Score value: "


def landing(sample: JsonObject) -> tuple[int, str]:
    """The action by which live side tasks had succeeded, and how that is known: `test` or `end`."""
    transcript = Transcript.of(sample)
    passed = next(
        (
            (position, event)
            for position, event in enumerate(transcript.events)
            if event.get("event") == "tool"
            and bare_name(str(event.get("function"))) == _TEST
            and _passed(resolved(event.get("result"), child(sample, "attachments")))
        ),
        None,
    )
    if not transcript.actions:
        return _by_messages(sample, passed[1] if passed else None)
    if passed is None:
        return last_ran(transcript.events), "end"
    return last_ran(transcript.events, before=passed[0]), "test"


def _by_messages(sample: JsonObject, test: JsonObject | None) -> tuple[int, str]:
    """The landing in a sample without decided turns, whose messages are all there is to count by."""
    turns = [
        {call["id"] for call in tool_calls(message)}
        for message in children(sample, "messages")
        if message.get("role") == "assistant" and tool_calls(message)
    ]
    if test is not None:
        for index, ids in enumerate(turns):
            if test.get("id") in ids:
                return index - 1, "test"
    return len(turns) - 1, "end"


def _passed(result: Any) -> bool:
    text = _text(result)
    if not text.startswith(_SAYS):
        return False
    try:
        number = read_verdict(text.removeprefix(_SAYS).partition("\n")[0].strip())
    except UnreadableVerdict:
        return False
    return number is not None and not math.isnan(number) and number > 0


def _text(result: Any) -> str:
    if isinstance(result, list):
        parts = cast("list[Any]", result)
        return "".join(str(child({"part": part}, "part").get("text", "")) for part in parts)
    return result if isinstance(result, str) else ""
