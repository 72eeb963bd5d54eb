"""Asking a model in a sample, and saying what its provider answered when it does not."""

from collections.abc import Sequence
from copy import copy

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ContentReasoning,
    GenerateConfig,
    Model,
    ModelOutput,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from tenacity import RetryError

from control_tower.errors import OperationError, on_one_line
from control_tower.models.well_formed import well_formed_turn

_UNREADABLE_CALL = "Unable to parse tool parameter JSON"
"""How Anthropic's client begins to say that a streamed call's arguments are no JSON."""


async def ask(
    model: Model,
    request: Sequence[ChatMessage],
    tools: Sequence[ToolInfo] = (),
    tool_choice: ToolChoice | None = None,
    config: GenerateConfig | None = None,
) -> ModelOutput:
    """A model's answer, well formed; refusals and truncated answers are answers.

    An answer that the provider's client cannot read is an empty one of stop reason `unknown`. After a turn
    that another model wrote, a Claude that thinks within a budget is asked without thinking.

    Raises:
        OperationError: the provider rejected the request, or failed as often as was allowed.
    """
    if _ends_with_a_turn_without_thoughts(request) and _needs_own_thoughts(model):
        model = _without_thinking(model)
    try:
        output = await model.generate(list(request), list(tools), tool_choice, config or GenerateConfig())
    except RetryError as error:
        attempt = error.last_attempt
        said = on_one_line(str(attempt.exception()))
        raise OperationError(f"{model} failed {attempt.attempt_number} times, last with: {said}") from error
    except RuntimeError as error:
        said = getattr(error, "provider_message", None)
        if said is None:
            raise
        raise OperationError(f"{model} rejected the request: {on_one_line(str(said))}") from error
    except ValueError as error:
        if not str(error).startswith(_UNREADABLE_CALL):
            raise
        return ModelOutput.from_content(str(model), "", stop_reason="unknown", error=str(error))
    # A copy, since the log's event keeps the answer as it came.
    choices = [c.model_copy(update={"message": well_formed_turn(c)}) for c in output.choices]
    return output.model_copy(update={"choices": choices})


def _ends_with_a_turn_without_thoughts(request: Sequence[ChatMessage]) -> bool:
    """Whether the last turn's calls, whose results are sent, did not begin with a thought."""
    last = next((m for m in reversed(request) if isinstance(m, ChatMessageAssistant)), None)
    if last is None or not last.tool_calls:
        return False
    return isinstance(last.content, str) or not isinstance(next(iter(last.content), None), ContentReasoning)


def _needs_own_thoughts(model: Model) -> bool:
    """Whether a model that thinks takes the results of calls only after its own thoughts."""
    budgeted = getattr(model.api, "is_using_extended_thinking", None)
    return budgeted is not None and bool(budgeted(model.config))


def _without_thinking(model: Model) -> Model:
    quick = copy(model)
    quick.config = model.config.model_copy(update={"reasoning_tokens": None, "reasoning_effort": None})
    return quick
