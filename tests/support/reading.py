"""What a log says about a sample, by kind of event."""

from typing import Any

from inspect_ai.event import InfoEvent, ModelEvent, ToolEvent
from inspect_ai.log import EvalSample
from inspect_ai.model import ChatMessage, ChatMessageTool


def notes(sample: EvalSample, source: str = "eval") -> list[dict[str, Any]]:
    """The facts of a source in order, without the numbers of steps and how the play ended."""
    return [
        event.data
        for event in sample.events
        if isinstance(event, InfoEvent)
        and event.source == source
        and isinstance(event.data, dict)
        and not {"step", "finished"} & set(event.data)
    ]


def model_events(sample: EvalSample, role: str) -> list[ModelEvent]:
    """The model events of a role."""
    return [e for e in sample.events if isinstance(e, ModelEvent) and e.role == role]


def ran(sample: EvalSample) -> list[tuple[str, dict[str, Any]]]:
    """Function and arguments of every tool call of the game that was executed, in order."""
    return [
        (e.function, e.arguments) for e in sample.events if isinstance(e, ToolEvent) and e.function != "score"
    ]


def answers(messages: list[ChatMessage]) -> list[str]:
    """What a model is told of its calls, in order: each result, or the error's text."""
    return [m.error.message if m.error else m.text for m in messages if isinstance(m, ChatMessageTool)]
