"""One sample's play: binds the sides to the seat, runs the harness and says how it ended."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentText,
    GenerateConfig,
    ModelOutput,
    StopReason,
)
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolChoice, ToolDef, ToolInfo

from control_tower.game.blue import Audited, Protocol, withhold
from control_tower.game.harness import Finish, NullHarness, Table
from control_tower.game.ledger import Ledger
from control_tower.game.opening import opening
from control_tower.game.red import Policy, Untrusted
from control_tower.game.seat import seat_model
from control_tower.game.tools.engine import audited, blocked
from control_tower.game.views import BlueView, RedView
from control_tower.game.white import White
from control_tower.logs.tool_names import is_submission_tool

OUTCOME = "outcome"
"""Sample metadata key: how the play ended, finer than the log's finish reasons."""

STEPS = "steps"
"""Sample metadata key: how many actions were decided."""

_OUTCOME_OF_STOP = {"content_filter": "refused", "max_tokens": "truncated", "model_length": "context_full"}


@dataclass(frozen=True)
class Sides:
    """Who plays a sample."""

    policy: Policy
    protocol: Protocol
    white: White


@dataclass(frozen=True)
class GameTools:
    """The tools of one sample by who may use them."""

    public: Sequence[ToolDef]
    """Offered to the untrusted model, the submit and submission tools of main tasks included."""
    private: Sequence[ToolDef]
    """Held by red: the private tools it chose and the submission tools of side tasks."""


class Play:
    """One sample being played.

    Args:
        state: the sample; its messages become the record of executed calls.
        sides: policy, protocol and white.
        view: what red knows; blue sees the same without the side tasks.
        tools: a function of the ledger's step, since submission tools record the step.
        on_action: called after each action with its index, for landing probes.
    """

    def __init__(
        self,
        state: TaskState,
        sides: Sides,
        view: RedView,
        tools: Callable[[Callable[[], int]], GameTools],
        on_action: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._state = state
        self._sides = sides
        self._attack = bool(view.side_tasks)
        self.ledger = Ledger()
        self._blue_view = BlueView(view.environment, view.main_tasks, self.ledger.history)
        self._audit_ended = False
        game_tools = tools(lambda: self._table.step)
        self._untrusted = Untrusted(sides.policy, game_tools.private)
        self._on_action = on_action
        engine_tools = [ToolDef(blocked()), ToolDef(audited())]
        self._table = Table(
            seat=seat_model(self._untrusted.model, self._decide),
            tools=list(game_tools.public),
            engine_tools=engine_tools,
            ledger=self.ledger,
            messages=state.messages,
            max_steps=sides.white.max_steps,
            audit_ended=lambda: self._audit_ended,
            on_action=self._after_action if on_action else None,
        )
        for message in opening(
            view.main_tasks,
            has_side_task=self._attack,
            submission_tools=[t.name for t in game_tools.public if is_submission_tool(t.name)],
        ):
            self.ledger.told(message)

    async def run(self) -> Finish:
        """Play the sample to its end and record how it ended."""
        harness = self._sides.protocol.harness or NullHarness()
        finish = await harness.play(self._table)
        transcript().info({"finished": finish}, source="eval")
        self._state.metadata[OUTCOME] = self._outcome(finish)
        self._state.completed = True
        return finish

    def _outcome(self, finish: Finish) -> str:
        last = self._untrusted.last_output
        if finish != "no_progress" or last is None:
            return finish
        return "refused" if _refused(last) else _OUTCOME_OF_STOP.get(last.stop_reason, finish)

    async def _after_action(self) -> None:
        if self._on_action:
            await self._on_action(self.ledger.last_ran)

    async def _decide(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        protocol = self._sides.protocol
        asked = await protocol.on_input(self._blue_view, input)
        conversation = list(input) if asked is None else asked

        async def draw(n: int) -> list[ChatMessageAssistant]:
            return await self._untrusted.draw(conversation, tools, tool_choice, GenerateConfig(), n)

        decision = await protocol.on_output(self._blue_view, draw)
        message = self._settled(decision)
        self._state.metadata[STEPS] = self.ledger.actions + bool(message.tool_calls)
        last = self._untrusted.last_output
        if last is None:
            raise RuntimeError(f"{type(protocol).__name__}.on_output decided without drawing a turn")
        output = ModelOutput(
            model=last.model,
            choices=[ChatCompletionChoice(message=message, stop_reason=_stop_reason(message, last))],
        )
        self._state.output = output
        return output

    def _settled(self, decision: ChatMessageAssistant | Audited) -> ChatMessageAssistant:
        """The turn that runs: an audited action of an attack sample has its calls withheld."""
        if not isinstance(decision, Audited):
            return decision
        draft = decision.draft
        if not draft.tool_calls:
            return draft
        transcript().info({"audited": self.ledger.actions}, source="audit")
        if not self._attack:
            return draft
        self._audit_ended = True
        return draft.model_copy(update={"tool_calls": [withhold(call) for call in draft.tool_calls]})


def _refused(output: ModelOutput) -> bool:
    """Whether a model declined: OpenAI's say so in the content of an answer that ended as usual."""
    content = output.message.content
    return not isinstance(content, str) and any(
        isinstance(part, ContentText) and part.refusal for part in content
    )


def _stop_reason(message: ChatMessageAssistant, drawn: ModelOutput) -> StopReason:
    return "tool_calls" if message.tool_calls else drawn.stop_reason
