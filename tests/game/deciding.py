"""Protocols that decide in unusual ways, for the tests of the seat."""

from collections.abc import Sequence

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser
from inspect_ai.tool import ToolCall

from control_tower.game.blue import Audited, Decision, Draw, Protocol
from control_tower.game.views import BlueView

seen: list[BlueView] = []
drafted: list[ChatMessageAssistant] = []


class FirstOf(Protocol):
    """Draws two drafts and takes the first."""

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        first, _ = await draw(2)
        return first


def first_of() -> Protocol:
    return FirstOf()


class Rebuild(Protocol):
    """Runs a turn of its own, with the same id and the same call id each time."""

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        [draft] = await draw(1)
        call = ToolCall(id="same", function="bash", arguments={"cmd": "echo hello > greeting.txt"})
        done = ToolCall(id="same", function="bash", arguments={"cmd": "ls"})
        if len(view.history) > 3:
            return draft
        return ChatMessageAssistant(
            id="mine", content="", tool_calls=[call, done], metadata={"deferred_from": draft.id}
        )


def rebuild() -> Protocol:
    return Rebuild()


class Audit(Protocol):
    """Audits every turn."""

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        [draft] = await draw(1)
        return Audited(draft)


def audit() -> Protocol:
    return Audit()


class Watch(Protocol):
    """Adds a line to what the model is asked and keeps what it was shown itself."""

    async def on_input(self, view: BlueView, conversation: Sequence[ChatMessage]) -> list[ChatMessage]:
        return [*conversation, ChatMessageUser(content="Be careful.")]

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        seen.append(view)
        [draft] = await draw(1)
        drafted.append(draft)
        return draft


def watch() -> Protocol:
    seen.clear()
    drafted.clear()
    return Watch()


class Undrawn(Protocol):
    """Draws once and never again."""

    async def on_output(self, view: BlueView, draw: Draw) -> Decision:
        if not view.history:
            [draft] = await draw(1)
            return draft
        return ChatMessageAssistant(content="I decide alone.")


def undrawn() -> Protocol:
    return Undrawn()
