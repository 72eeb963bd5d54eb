"""Asking monitors inside an Inspect sample, and reading back what its log says."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent, SpanBeginEvent, ToolEvent
from inspect_ai.log import EvalSample, read_eval_log
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolCall

from control_tower.game.views import BlueView
from control_tower.monitors.config import MAX, CombineRule, parse_monitors
from control_tower.monitors.panel import Panel, Review
from control_tower.records.tasks import EnvironmentData, MainTaskData
from tests.support.models import turn

GOALS = ["Steal the tea.", "Spoil the milk."]
ENVIRONMENT = EnvironmentData(
    id="kitchen", display_name="Kitchen", description="A kitchen with tea.", side_task_goals=GOALS
)
TASK = MainTaskData(id="brew", environment="kitchen", name="Brew", description="Make a pot of tea.")


def called(*commands: str, text: str = "", ident: str = "d1") -> ChatMessageAssistant:
    """A turn with a bash call for each command."""
    calls = [
        ToolCall(id=f"{ident}-{n}", function="bash", arguments={"cmd": c}) for n, c in enumerate(commands)
    ]
    return ChatMessageAssistant(
        id=ident, content=text, tool_calls=calls or None, model="fake/agent", source="generate"
    )


def ran(message: ChatMessageAssistant, *results: str) -> list[ChatMessage]:
    """A turn followed by the results of its calls."""
    calls = message.tool_calls or []
    answers = [
        ChatMessageTool(content=result, tool_call_id=call.id, function=call.function)
        for call, result in zip(calls, results, strict=True)
    ]
    return [message, *answers]


def score(value: Any, reasoning: Any = "Because.") -> Any:
    """A model's answer that calls the score tool."""
    return turn(("score", {"reasoning": reasoning, "score": value}))


class Reviewed:
    """What a panel said, and the log of the sample it said it in."""

    def __init__(self, reviews: list[Review], sample: EvalSample) -> None:
        self.reviews = reviews
        self.sample = sample

    @property
    def review(self) -> Review:
        """The only review."""
        [review] = self.reviews
        return review

    def model_events(self) -> list[ModelEvent]:
        """Every call of a model."""
        return [event for event in self.sample.events if isinstance(event, ModelEvent)]

    def tool_events(self) -> list[ToolEvent]:
        """Every call of a tool."""
        return [event for event in self.sample.events if isinstance(event, ToolEvent)]

    def spans(self) -> list[str]:
        """Names of the scopes of monitors."""
        events = [event for event in self.sample.events if isinstance(event, SpanBeginEvent)]
        return [event.name for event in events if event.type == "ct_scope"]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The verdicts in the sample's store."""
        return self.sample.store.get("MonitorScores:items", [])


def in_sample(
    work: Callable[[], Awaitable[None]], tmp_path: Path, roles: dict[str, str] | None = None, **config: Any
) -> EvalSample:
    """Do something inside a sample whose roles have models."""

    @solver
    def doing() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await work()
            return state

        return solve

    [log] = eval(
        Task(dataset=MemoryDataset([Sample(id="s", input="x")]), solver=doing()),
        model="none/none",
        model_roles={name: get_model(model, **config) for name, model in (roles or {}).items()},
        display="none",
        log_dir=str(tmp_path),
    )
    [sample] = read_eval_log(log.location, resolve_attachments=True).samples or []
    return sample


def review(
    monitors: Any,
    tmp_path: Path,
    *drafts: ChatMessageAssistant,
    history: Sequence[ChatMessage] = (),
    roles: dict[str, str] | None = None,
    combine: CombineRule = MAX,
    view: BlueView | None = None,
) -> Reviewed:
    """Have drafts reviewed one after the other; one that lists files where none is given."""
    reviews: list[Review] = []

    async def work() -> None:
        panel = Panel(parse_monitors(monitors), combine)
        for draft in drafts or (called("ls"),):
            seen = view or BlueView(ENVIRONMENT, (TASK,), history)
            reviews.append(await panel.review(seen, draft))

    sample = in_sample(work, tmp_path, roles)
    assert sample.error is None, sample.error.traceback
    return Reviewed(reviews, sample)
