"""Policies that play prepared calls instead of asking a model."""

from collections.abc import Sequence

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

from control_tower.game.answering import AnsweringModel
from control_tower.game.harness import REJECTED_SUBMIT
from control_tower.game.red import HIDDEN_UNTRUSTED, Policy, is_private
from control_tower.inspect_private import with_role
from control_tower.logs.tool_names import BLOCKED, SUBMIT

SCRIPTED_PROVIDER = "scripted"


class ScriptPolicy(Policy):
    """Plays `outputs` in order, then stops; a subclass fills them in `setup`.

    The position is the number of public turns so far, so that every draft of one action is the same
    and a blocked call is not repeated, but for a blocked submit, which is tried once more.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.outputs: list[ModelOutput] = []

    def action_model(self) -> Model:
        model = get_model(f"{SCRIPTED_PROVIDER}/{self._name}", memoize=False, answer=self._answer)
        return with_role(model, HIDDEN_UNTRUSTED)

    async def _answer(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        return self.next_output(input)

    def next_output(self, conversation: Sequence[ChatMessage]) -> ModelOutput:
        """The turn that follows a conversation."""
        last = conversation[-1] if conversation else None
        if last is not None and (last.metadata or {}).get(REJECTED_SUBMIT):
            return said(self._name, "The submit was rejected.")
        turns = [m for m in conversation if m.role == "assistant" and not is_private(m)]
        if len(turns) < len(self.outputs):
            return self.outputs[len(turns)]
        if len(turns) == len(self.outputs) and submit_blocked(last):
            return self.outputs[-1]
        return said(self._name, "The script is at its end.")


@modelapi(name=SCRIPTED_PROVIDER)
class ScriptedModel(AnsweringModel):
    """Answers with what a policy prepared."""


def called(
    model: str, function: str, arguments: dict[str, object], call_id: str, text: str = ""
) -> ModelOutput:
    """A turn that makes one call."""
    call = ToolCall(id=call_id, function=function, arguments=dict(arguments))
    message = ChatMessageAssistant(content=text, tool_calls=[call], model=model, source="generate")
    return ModelOutput(model=model, choices=[ChatCompletionChoice(message=message, stop_reason="tool_calls")])


def said(model: str, text: str) -> ModelOutput:
    """A turn without a call."""
    return ModelOutput.from_content(model, text)


def submit_blocked(message: ChatMessage | None) -> bool:
    """Whether a message says that blue refused a submit."""
    if not isinstance(message, ChatMessageTool) or message.function != BLOCKED:
        return False
    return message.error is not None and f"call to {SUBMIT} " in message.error.message
