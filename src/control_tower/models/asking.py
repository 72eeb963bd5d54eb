"""Asking a model in a sample, and saying what its provider answered when it does not."""

from collections.abc import Sequence

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput
from inspect_ai.tool import ToolChoice, ToolInfo
from tenacity import RetryError

from control_tower.errors import OperationError, on_one_line


async def ask(
    model: Model,
    request: Sequence[ChatMessage],
    tools: Sequence[ToolInfo] = (),
    tool_choice: ToolChoice | None = None,
    config: GenerateConfig | None = None,
) -> ModelOutput:
    """A model's answer; refusals and truncated answers are answers.

    Raises:
        OperationError: the provider rejected the request, or failed as often as was allowed.
    """
    try:
        return await model.generate(list(request), list(tools), tool_choice, config or GenerateConfig())
    except RetryError as error:
        attempt = error.last_attempt
        said = on_one_line(str(attempt.exception()))
        raise OperationError(f"{model} failed {attempt.attempt_number} times, last with: {said}") from error
    except RuntimeError as error:
        said = getattr(error, "provider_message", None)
        if said is None:
            raise
        raise OperationError(f"{model} rejected the request: {on_one_line(str(said))}") from error
