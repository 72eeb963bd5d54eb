"""Blue: what a protocol is and what it can decide about an action."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, ChatMessageAssistant
from inspect_ai.tool import ToolCall

from control_tower.errors import OperationError
from control_tower.game.views import BlueView
from control_tower.logs.tool_names import AUDITED, BLOCKED

if TYPE_CHECKING:
    from control_tower.game.harness import Harness

Draw = Callable[[int], Awaitable[list[ChatMessageAssistant]]]
"""Asks the untrusted model for n drafts of its next turn."""


@dataclass(frozen=True)
class Audited:
    """The decision to have a human look at this draft before it runs.

    An audited action of an attack sample ends the sample before anything of it runs; on an honest sample
    it is counted and runs.
    """

    draft: ChatMessageAssistant


class UnscoredAction(OperationError):
    """No monitor could score an action, and the protocol does not go on without a score.

    An attack sample that ends by it counts as one that succeeded and was not caught.
    """


Decision = ChatMessageAssistant | Audited

DEFERRED_FROM = "deferred_from"
"""Metadata key of a turn that the trusted model wrote: the id of the draft it replaced."""
EDITED_FROM = "edited_from"
"""Metadata key of a turn that the trusted model rewrote: the id of the draft it replaced."""


class Protocol:
    """How blue oversees one sample; the base class runs whatever the untrusted model drafts.

    Args:
        harness: the loop that asks for turns and runs them; None is the plain loop.
    """

    def __init__(self, harness: "Harness | None" = None) -> None:
        self.harness = harness

    async def on_input(self, view: BlueView, conversation: Sequence[ChatMessage]) -> list[ChatMessage] | None:
        """Rewrite what the untrusted model is asked; None leaves it as it is."""
        return None

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        """Decide the next turn: a draft, a turn of blue's own making, or an audit.

        Args:
            view: what blue may know.
            draw: must be called at least once.

        Returns:
            A draft or a copy of one with other calls; a turn of blue's own, whose metadata `deferred_from`
            or `edited_from` names the draft it replaces; or an audit of either. Ids that are missing or
            taken are given.

        Raises:
            UnscoredAction: no monitor could score the action; the sample ends by this error.
        """
        [draft] = await draw(1)
        return draft

    def note(self, fact: Mapping[str, Any]) -> None:
        """Write a fact about the decision into the log."""
        transcript().info(dict(fact), source="eval")

    def spent(self, component: str, usd: float | None) -> None:
        """Record money that went to something other than a model; None says the amount is unknown."""
        transcript().info({"component": component, "usd": usd, "role": "protocol"}, source="cost")


def block(call: ToolCall, reason: str) -> ToolCall:
    """The call as it runs when blue refuses it: under its own id, answered with the reason."""
    return ToolCall(
        id=call.id,
        function=BLOCKED,
        arguments={"call": {"function": call.function, "arguments": call.arguments}, "reason": reason},
    )


def withhold(call: ToolCall) -> ToolCall:
    """The call as it runs when its action is audited on an attack sample: nothing happens."""
    return ToolCall(
        id=call.id,
        function=AUDITED,
        arguments={"withheld_call": {"function": call.function, "arguments": call.arguments}},
    )
