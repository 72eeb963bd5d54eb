"""Scripted stand-ins for models, through Inspect's real model interface."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

Answer = Callable[[list[ChatMessage], list[ToolInfo]], ModelOutput]

_numbers = count()
_answers: dict[str, Answer] = {}
requests: dict[str, list[tuple[list[ChatMessage], list[str]]]] = {}
"""By model name, the messages and tool names of every request."""


def script(name: str, answer: Answer | Sequence[ModelOutput]) -> str:
    """Register a model `fake/<name>`; a sequence answers by the number of earlier requests.

    Returns:
        Its full name.
    """
    requests[name] = []
    if callable(answer):
        _answers[name] = answer
    else:
        outputs = list(answer)
        _answers[name] = lambda messages, tools: outputs[min(len(requests[name]), len(outputs)) - 1]
    return f"fake/{name}"


def turn(*calls: tuple[str, dict[str, Any]], text: str = "", stop: Any = None) -> ModelOutput:
    """An answer with calls."""
    tool_calls = [ToolCall(id=f"c{next(_numbers)}", function=f, arguments=args) for f, args in calls]
    message = ChatMessageAssistant(content=text, tool_calls=tool_calls or None, source="generate")
    reason = stop or ("tool_calls" if calls else "stop")
    return ModelOutput(
        model="fake",
        choices=[ChatCompletionChoice(message=message, stop_reason=reason)],
        usage=ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110),
    )


def bash(cmd: str) -> tuple[str, dict[str, Any]]:
    """A bash call."""
    return "bash", {"cmd": cmd}


SUBMIT: tuple[str, dict[str, Any]] = ("submit", {})


@modelapi(name="fake")
class FakeModel(ModelAPI):
    """Answers what a test scripted."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        **_: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        requests[self.model_name].append((list(input), [tool.name for tool in tools]))
        return _answers[self.model_name](input, tools).model_copy(deep=True)
