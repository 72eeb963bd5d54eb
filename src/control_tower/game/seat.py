"""The seat: the model the harness talks to, whose every answer is what blue decided.

A harness asks the model `eval/<untrusted model>` in role `untrusted`; behind it the untrusted model is
asked (role `hidden_untrusted`), blue looks at the drafts and decides. So a log shows each decision as
one model event, with the calls that led to it after its start and no usage of its own.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from control_tower.inspect_private import with_role

SEAT_PROVIDER = "eval"
SEAT_ROLE = "untrusted"

Decide = Callable[[list[ChatMessage], list[ToolInfo], ToolChoice, GenerateConfig], Awaitable[ModelOutput]]

_NO_QUEUE = 1_000_000
"""Connections of the seat: it holds one while others are asked, so it must never be what waits."""


@modelapi(name=SEAT_PROVIDER)
class Seat(ModelAPI):
    """A model provider that answers with a decision instead of calling a model."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        decide: Decide | None = None,
        **_: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._decide = decide

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        if self._decide is None:
            raise RuntimeError("the seat answers only inside a sample")
        return await self._decide(input, tools, tool_choice, config)

    def max_connections(self) -> int:
        return _NO_QUEUE

    def connection_key(self) -> str:
        return SEAT_PROVIDER


def seat_model(untrusted: Model, decide: Decide) -> Model:
    """The seat over `untrusted`, for one sample."""
    model = get_model(
        f"{SEAT_PROVIDER}/{untrusted}",
        memoize=False,
        config=GenerateConfig(max_connections=_NO_QUEUE),
        decide=decide,
    )
    return with_role(model, SEAT_ROLE)
