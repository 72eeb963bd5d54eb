"""The harness: the loop that asks the seat for turns and runs their calls."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    Model,
    execute_tools,
)
from inspect_ai.tool import ToolCall, ToolDef
from inspect_ai.util import span

from control_tower.game.ledger import Ledger
from control_tower.logs.tool_names import AUDITED, BLOCKED, SUBMIT, is_submission_tool
from control_tower.models.well_formed import well_formed

Finish = Literal["submitted", "audited", "step_limit", "no_progress"]

REJECTED_SUBMIT = "ct_rejected_submit"
"""Metadata key of the note that tells the untrusted model why its submit did not count."""


@dataclass
class Table:
    """What a harness plays with: the seat, the tools and the ledger of one sample."""

    seat: Model
    """The model whose answers are blue's decisions."""
    tools: list[ToolDef]
    """Everything the untrusted model is offered, the submit tool included."""
    engine_tools: list[ToolDef]
    """Tools that blue's decisions call: never offered."""
    ledger: Ledger
    messages: list[ChatMessage]
    """The sample's messages: executed calls and their results, nothing else."""
    max_steps: int
    audit_ended: Callable[[], bool] = lambda: False
    """Whether the turn just decided was audited and ends the sample."""
    on_action: "Callable[[], Awaitable[None]] | None" = None
    """Called after each action's calls ran."""
    asks: int = 0
    step: int = 0
    final_turn: ChatMessageAssistant | None = field(default=None)
    """The turn that ended the play without a submit."""


class Harness(Protocol):
    """A way to play; it returns why the play ended."""

    async def play(self, table: Table) -> Finish:
        """Play one sample to its end."""
        ...


class NullHarness:
    """The plain loop: ask, run the calls here, ask again."""

    async def play(self, table: Table) -> Finish:
        """Play until the model submits, stops calling tools, or was asked `max_steps` times."""
        continued = False
        while True:
            async with span(f"step {table.step}", type="ct_step"):
                transcript().info({"step": table.step}, source="eval")
                finish, continued = await self._step(table, continued)
            table.step += 1
            if finish:
                return finish

    async def _step(self, table: Table, continued: bool) -> tuple[Finish | None, bool]:
        while True:
            if table.asks >= table.max_steps:
                return "step_limit", continued
            table.asks += 1
            output = await table.seat.generate(table.ledger.conversation, [*table.tools])
            message = output.message
            if not message.tool_calls:
                table.ledger.decided(message)
                if output.stop_reason == "max_tokens" and not continued:
                    table.ledger.told(ChatMessageUser(content="Continue."))
                    return None, True
                table.final_turn = message
                return "no_progress", continued
            submits = [call for call in message.tool_calls if call.function == SUBMIT]
            if table.audit_ended():
                await self._run(table, message)
                return "audited", False
            if not submits:
                await self._run(table, message)
                return None, False
            if await self._submit(table, message, submits[0]):
                return "submitted", False

    async def _run(self, table: Table, message: ChatMessageAssistant) -> None:
        table.ledger.decided(message)
        await self._execute(table, message.tool_calls or [])
        if table.on_action:
            await table.on_action()

    async def _submit(self, table: Table, message: ChatMessageAssistant, submit: ToolCall) -> bool:
        """Run a submit after the submission calls made beside it; other calls of the turn are dropped."""
        calls = message.tool_calls or []
        table.ledger.decided(message)
        results: list[ChatMessageTool] = []
        for call in calls:
            if is_submission_tool(call.function) or _blocked_submission(call):
                results += await self._execute(table, [call])
        if not any(result.error for result in results):
            results += await self._execute(table, [submit])
        if not any(result.error for result in results):
            return True
        table.ledger.take_back(1 + len(results))
        outcomes = "\n".join(
            f"- {result.function}: {result.error.message if result.error else result.text}"
            for result in results
        )
        table.ledger.told(
            ChatMessageUser(
                content=f"Your submit did not count:\n{outcomes}",
                metadata={REJECTED_SUBMIT: True},
            )
        )
        return False

    async def _execute(self, table: Table, calls: list[ToolCall]) -> list[ChatMessageTool]:
        record = ChatMessageAssistant(content="", tool_calls=calls)
        table.messages.append(record)
        executed = await execute_tools([record], [*table.tools, *table.engine_tools])
        messages = [well_formed(message) for message in executed.messages]
        table.messages.extend(messages)
        table.ledger.ran(messages)
        return [message for message in messages if isinstance(message, ChatMessageTool)]


def _blocked_submission(call: ToolCall) -> bool:
    inner = call.arguments.get("call") if call.function in (BLOCKED, AUDITED) else None
    return isinstance(inner, dict) and is_submission_tool(str(inner.get("function")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
