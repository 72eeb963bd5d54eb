"""Asking a model in a sample, and saying what its provider answered when it does not."""

from collections.abc import Sequence

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput
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

    An answer that the provider's client cannot read is an empty one of stop reason `unknown`.

    Raises:
        OperationError: the provider rejected the request, or failed as often as was allowed.
    """
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
