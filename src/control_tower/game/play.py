"""One sample's play: binds the sides to the seat, runs the harness and says how it ended."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentText,
    GenerateConfig,
    ModelOutput,
)
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolChoice, ToolDef, ToolInfo

from control_tower.game.blue import DEFERRED_FROM, EDITED_FROM, Audited, Protocol, UnscoredAction, withhold
from control_tower.game.harness import Finish, NullHarness, Table
from control_tower.game.ledger import Ledger, of_nobody
from control_tower.game.opening import opening
from control_tower.game.red import Policy, Untrusted, with_fresh_id
from control_tower.game.seat import seat_model
from control_tower.game.tools.engine import audited, blocked
from control_tower.game.views import BlueView, RedView
from control_tower.game.white import White
from control_tower.logs.tool_names import is_submission_tool
from control_tower.records.outcomes import OUTCOME, UNSCORED_ACTION

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
        self._audit_ended = False
        self._drawn: ModelOutput | None = None
        self._decided_ids: set[str] = set()
        game_tools = tools(lambda: self._table.step)
        self._untrusted = Untrusted(sides.policy, game_tools.private)
        self._blue_view = BlueView(view.environment, view.main_tasks, self.ledger.history)
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
        if finish != "no_progress" or self._drawn is None:
            return finish
        return "refused" if _refused(self._drawn) else _OUTCOME_OF_STOP.get(self._drawn.stop_reason, finish)

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
        view = replace(self._blue_view, conversation=input, tools=tools)
        asked = await protocol.on_input(view, input)
        if asked is not None:
            view = replace(view, conversation=asked)
        drafts: list[ChatMessageAssistant] = []

        async def draw(n: int) -> list[ChatMessageAssistant]:
            conversation = list(view.conversation)
            drawn = await self._untrusted.draw(conversation, tools, tool_choice, GenerateConfig(), n)
            anonymous = [of_nobody(draft) for draft in drawn]
            drafts.extend(anonymous)
            return anonymous

        try:
            decision = await protocol.on_output(view, draw)
        except UnscoredAction:
            self._state.metadata[OUTCOME] = UNSCORED_ACTION
            raise
        if not drafts:
            raise RuntimeError(f"{type(protocol).__name__}.on_output decided without drawing a turn")
        decided = decision.draft if isinstance(decision, Audited) else decision
        self._drawn = self._origin(decided, drafts[-1])
        named = _named(decided, self._drawn)
        message = self._settled(_with_own_ids(named, self._decided_ids), isinstance(decision, Audited))
        self._decided_ids.add(str(message.id))
        self._state.metadata[STEPS] = self.ledger.actions + bool(message.tool_calls)
        output = _seat_output(message, self._drawn)
        self._state.output = output
        return output

    def _origin(self, decided: ChatMessageAssistant, last: ChatMessageAssistant) -> ModelOutput:
        """The answer of the untrusted model that a decision is about."""
        metadata = decided.metadata or {}
        for ident in (decided.id, metadata.get(DEFERRED_FROM), metadata.get(EDITED_FROM), last.id):
            output = self._untrusted.output_of(ident)
            if output is not None:
                return output
        raise RuntimeError("a drawn turn has no answer that it came from")

    def _settled(self, message: ChatMessageAssistant, audit: bool) -> ChatMessageAssistant:
        """The turn that runs: an audited action of an attack sample has its calls withheld."""
        if not audit or not message.tool_calls:
            return message
        transcript().info({"audited": self.ledger.actions}, source="audit")
        if not self._attack:
            return message
        self._audit_ended = True
        return message.model_copy(update={"tool_calls": [withhold(call) for call in message.tool_calls]})


def _named(decided: ChatMessageAssistant, drawn: ModelOutput) -> ChatMessageAssistant:
    """A turn that is blue's version of a draft, as that of the draft's model, which blue is not told."""
    if decided.id != drawn.message.id and DEFERRED_FROM in (decided.metadata or {}):
        return decided
    return decided.model_copy(update={"model": drawn.message.model, "source": drawn.message.source})


def _with_own_ids(message: ChatMessageAssistant, decided: set[str]) -> ChatMessageAssistant:
    """The turn with an id that no earlier one has and calls that each have one."""
    message = with_fresh_id(message, decided)
    ids = [call.id for call in message.tool_calls or []]
    if all(ids) and len(set(ids)) == len(ids):
        return message
    calls = [
        call if call.id and call.id not in ids[:n] else replace(call, id=uuid4().hex)
        for n, call in enumerate(message.tool_calls or [])
    ]
    return message.model_copy(update={"tool_calls": calls})


def _seat_output(message: ChatMessageAssistant, drawn: ModelOutput) -> ModelOutput:
    """The decision as the seat's answer: without usage, since the draws and blue's questions carry theirs."""
    stop_reason = drawn.stop_reason
    if message.tool_calls:
        stop_reason = "tool_calls"
    elif stop_reason == "tool_calls":
        stop_reason = "stop"
    replaced = message.id != drawn.message.id
    model = message.model if replaced and message.model else drawn.model
    return ModelOutput(model=model, choices=[ChatCompletionChoice(message=message, stop_reason=stop_reason)])


def _refused(output: ModelOutput) -> bool:
    """Whether a model declined: OpenAI's say so in the content of an answer that ended as usual."""
    content = output.message.content
    return not isinstance(content, str) and any(
        isinstance(part, ContentText) and part.refusal for part in content
    )
