"""Where a play does something else than the recording it follows: the first call that differs, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from control_tower.logs.actions import Transcript, Turn
from control_tower.logs.events import is_seat_turn
from control_tower.logs.json_text import JsonObject
from control_tower.logs.recordings import Recording
from control_tower.logs.tool_names import bare_name, withheld_in

Made = tuple[str, JsonObject]
"""A call as it was made: the tool's own name and the arguments."""

_SHOWN = 200
"""Characters of a call that a message shows."""


@dataclass(frozen=True)
class Divergence:
    """The first action that is not the recorded one."""

    step: int
    """The step of the play, from 0."""
    action: int
    """The number of the action, from 0."""
    expected: str
    """The recorded call."""
    actual: str
    """What came instead."""

    def __str__(self) -> str:
        return f"step {self.step} (action {self.action}): expected {self.expected}, got {self.actual}"

    def as_json(self) -> dict[str, Any]:
        """As logs record it."""
        return {"step": self.step, "action": self.action, "expected": self.expected, "actual": self.actual}


def first_divergence(recording: Recording, sample: JsonObject) -> Divergence | None:
    """The first action of a sample of a log that is not the recorded one; None when all are, to the end."""
    transcript = Transcript.of(sample)
    recorded = [turn for turn in recording.turns if turn.calls]
    step = -1
    for step, turn in _steps(transcript):
        if turn.index is None:
            continue
        expected = [call.what for call in recorded[turn.index].calls] if turn.index < len(recorded) else []
        actual = [(call.name, transcript.resolve(call.arguments)) for call in turn.calls]
        if difference := first_difference(expected, actual):
            return Divergence(step, turn.index, *difference)
    played = len(transcript.actions)
    if played < len(recorded):
        ended = f"the end ({transcript.finish_reason or 'cut off'})"
        return Divergence(step + 1, played, told(recorded[played].calls[0].what), ended)
    return None


def first_difference(recorded: Sequence[Made], made: Sequence[Made]) -> tuple[str, str] | None:
    """The first recorded call that a turn does not make, and what it makes instead, where there is one."""
    for i in range(max(len(recorded), len(made))):
        expected = recorded[i] if i < len(recorded) else None
        actual = made[i] if i < len(made) else None
        if expected != actual:
            return told(expected), told(actual)
    return None


def told(call: Made | None) -> str:
    """A call in words, cut when long; a refused or audited one by what it stands for."""
    if call is None:
        return "no further call"
    function, arguments = call
    if (stands_for := withheld_in(function, arguments)) is not None:
        return f"{function} {told((str(stands_for.get('function')), stands_for.get('arguments') or {}))}"
    text = f"{bare_name(function)} {json.dumps(arguments, ensure_ascii=False)}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _steps(transcript: Transcript) -> Iterator[tuple[int, Turn]]:
    """The decided turns with the steps they were decided in."""
    turns = iter(transcript.turns)
    step = 0
    for event in transcript.events:
        if is_seat_turn(event):
            yield step, next(turns)
        elif event.get("event") == "info" and event.get("source") == "eval":
            data = event.get("data")
            if isinstance(data, dict) and type(number := cast(JsonObject, data).get("step")) is int:
                step = number
