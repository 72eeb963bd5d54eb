"""What monitors are given of a sample of a finished log, which another program may have written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic
from inspect_ai.model import ChatMessage, ChatMessageAssistant
from pydantic import TypeAdapter

from control_tower.errors import ValidationError
from control_tower.logs.json_text import JsonObject, child
from control_tower.logs.judgeable import conversation_of
from control_tower.models.well_formed import escaped
from control_tower.monitors.monitor import MonitorInputs
from control_tower.monitors.shown import visible_calls
from control_tower.records.tasks import SampleMetadata

Kind = Literal["action", "trajectory"]

_MESSAGES: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])


@dataclass(frozen=True)
class Judged:
    """One conversation that monitors judge."""

    index: int | None
    """Of the action; None for the whole trajectory."""
    messages: Sequence[ChatMessage]

    @property
    def scope(self) -> str:
        """The name of its span."""
        return "monitor: trajectory" if self.index is None else f"monitor: action {self.index}"


def judged_of(log: Path, sample: JsonObject, kind: Kind) -> tuple[list[Judged], MonitorInputs]:
    """What monitors judge of a sample, and what they may know besides.

    Args:
        log: where the sample is from, for messages.
        sample: as the log has it.
        kind: whether its actions that have calls are judged, or all of it.

    Raises:
        ValidationError: the sample holds something that cannot be shown to monitors.
    """
    try:
        metadata = SampleMetadata.model_validate(escaped(child(sample, "metadata")))
        inputs = MonitorInputs.of(metadata.environment, metadata.main_tasks)
        return list(_judged(sample, kind)), inputs
    except pydantic.ValidationError as error:
        # A message may be of several kinds, each with its own errors: the deepest is of the kind it is.
        deepest = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
        where = ".".join(str(part) for part in deepest["loc"] if "[" not in str(part))
        raise ValidationError(
            f"{log}: sample {sample.get('id')} epoch {sample.get('epoch')} cannot be judged: {where} is "
            f"{deepest['input']!r:.80}: {deepest['msg']}; judge a log without it, or convert the log"
        ) from None


def _judged(sample: JsonObject, kind: Kind) -> Iterator[Judged]:
    conversation = conversation_of(sample)
    messages = _MESSAGES.validate_python([escaped(message) for message in conversation.messages])
    if kind == "trajectory":
        if messages:
            yield Judged(None, messages)
        return
    for index, length in conversation.before():
        action = messages[length - 1]
        if isinstance(action, ChatMessageAssistant) and visible_calls(action):
            yield Judged(index, messages[:length])
