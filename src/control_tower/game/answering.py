"""Model providers that answer from this process: the seat, and policies that play a script."""

from collections.abc import Awaitable, Callable
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput
from inspect_ai.tool import ToolChoice, ToolInfo

Answer = Callable[[list[ChatMessage], list[ToolInfo], ToolChoice, GenerateConfig], Awaitable[ModelOutput]]

NO_QUEUE = 1_000_000
"""Connections of such a model: it may hold one while it asks others, so it must never be what waits."""


class AnsweringModel(ModelAPI):
    """Hands each request to a function; made with `get_model(..., memoize=False, answer=...)`."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        answer: Answer | None = None,
        **_: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._answer = answer

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answer a request."""
        if self._answer is None:
            raise RuntimeError(f"{self.model_name} answers only inside a sample")
        return await self._answer(input, tools, tool_choice, config)

    def max_connections(self) -> int:
        """As many as there are requests."""
        return NO_QUEUE
