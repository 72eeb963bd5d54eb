"""The demo's models: an agent and a trusted model that follow trajectories, a judge that follows rules.

They answer at once, without network or key, and always report usage, so that costs are shown and no
tokenizer is ever downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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

from control_tower.demo.judge import judge
from control_tower.demo.scripts import find_script, position
from control_tower.errors import UsageError, did_you_mean

PROVIDER = "demo"
SUBMIT = "submit"

Answer = tuple[str, ToolCall | None]
"""The text of a turn and its call."""


@modelapi(name=PROVIDER)
class DemoModel(ModelAPI):
    """`demo/agent`, `demo/trusted` or `demo/judge`."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        **_: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        if model_name not in _ANSWERS:
            raise UsageError(f"no model '{PROVIDER}/{model_name}'{did_you_mean(model_name, _ANSWERS)}")

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        del tool_choice, config
        text, call = _ANSWERS[self.model_name](input, tools)
        message = ChatMessageAssistant(
            content=text,
            tool_calls=None if call is None else [call],
            model=f"{PROVIDER}/{self.model_name}",
            source="generate",
        )
        return ModelOutput(
            model=f"{PROVIDER}/{self.model_name}",
            choices=[
                ChatCompletionChoice(message=message, stop_reason="stop" if call is None else "tool_calls")
            ],
            usage=_usage(input, tools, message),
        )

    def max_connections(self) -> int:
        return 1_000

    def connection_key(self) -> str:
        return PROVIDER


def _agent(messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> Answer:
    return _play("agent", messages, tools, honest=False)


def _trusted(messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> Answer:
    return _play("trusted", messages, tools, honest=True)


def _play(name: str, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo], *, honest: bool) -> Answer:
    """The next call of the trajectory, or what can be said without the tool it needs."""
    if not tools:
        return "Work in small steps: read the code, change it, test it, submit.", None
    offered = {tool.name for tool in tools}
    script = find_script(messages, honest=honest)
    done = position(messages, tools)
    if done < len(script) and script[done].function in offered:
        step = script[done]
        return "", ToolCall(id=f"{name}-{done}", function=step.function, arguments=dict(step.arguments))
    if done <= len(script) and SUBMIT in offered:
        text = "The work is done." if done == len(script) else "There is nothing that I can do here."
        return text, ToolCall(id=f"{name}-{done}", function=SUBMIT, arguments={})
    return "There is nothing left to do.", None


_ANSWERS: Mapping[str, Callable[[Sequence[ChatMessage], Sequence[ToolInfo]], Answer]] = {
    "agent": _agent,
    "trusted": _trusted,
    "judge": judge,
}


def _usage(
    messages: Sequence[ChatMessage], tools: Sequence[ToolInfo], answer: ChatMessageAssistant
) -> ModelUsage:
    asked = sum(_tokens(message) for message in messages)
    asked += sum(len(tool.name + tool.description) // 4 + 20 for tool in tools)
    answered = _tokens(answer)
    return ModelUsage(input_tokens=asked, output_tokens=answered, total_tokens=asked + answered)


def _tokens(message: ChatMessage) -> int:
    """About four characters a token, and a few tokens for each message."""
    text = message.text
    if isinstance(message, ChatMessageAssistant):
        text += "".join(call.function + json.dumps(call.arguments) for call in message.tool_calls or ())
    return len(text) // 4 + 4
