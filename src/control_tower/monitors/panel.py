"""The monitors of one sample: asked in parallel, their verdicts recorded and combined to one number."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, ChatMessageAssistant
from inspect_ai.util import StoreModel, span, store_as
from pydantic import Field

from control_tower.game.views import BlueView
from control_tower.inspect_private import gather, running_sample
from control_tower.monitors.config import MAX, MONITOR_ROLE, CombineRule, Monitor
from control_tower.monitors.monitor import MonitorFailed, MonitorFunction, MonitorInputs, call_monitor
from control_tower.monitors.naming import judging
from control_tower.monitors.shown import Shown, visible_calls
from control_tower.monitors.verdict_cache import VerdictCache
from control_tower.records.monitor_scores import MonitorEntry


class MonitorScores(StoreModel):
    """The verdicts given while a sample is played, in order."""

    items: list[dict[str, Any]] = Field(default_factory=list)


_aside: ContextVar[list[MonitorEntry] | None] = ContextVar("aside", default=None)


@contextmanager
def verdicts_stored_once() -> Generator[None]:
    """Keep the running sample's verdicts aside meanwhile, and store them when it ends, however that is.

    Inspect compares the store before and after every span, so a list that grows in it makes steps slower.
    """
    verdicts: list[MonitorEntry] = []
    token = _aside.set(verdicts)
    try:
        yield
    finally:
        _aside.reset(token)
        if verdicts:
            _record(verdicts)


def recorded_verdicts() -> list[MonitorEntry]:
    """The verdicts of the running sample so far."""
    stored = [MonitorEntry.from_json(item) for item in store_as(MonitorScores).items]
    return [*stored, *(_aside.get() or ())]


@dataclass(frozen=True)
class Review:
    """What a panel says of one draft."""

    combined: float | None
    """From 0 to 100; None when no draw gave a number, and when nothing was asked."""
    verdicts: tuple[MonitorEntry, ...] = ()
    """One for each draw of each monitor."""
    skipped: bool = False
    """Whether no monitor was asked, since the draft has no call that monitors see."""

    @property
    def unscored(self) -> bool:
        """Whether monitors were asked in vain."""
        return self.combined is None and not self.skipped

    @property
    def reason(self) -> str:
        """Why there is no number, in one line."""
        failures = (f"{v.monitor}: {v.explanation}" for v in self.verdicts if v.value is None)
        return "; ".join(dict.fromkeys(failures)) or "the combination of the verdicts is no number"


@dataclass(frozen=True)
class _Member:
    monitor: Monitor
    function: MonitorFunction
    needs: frozenset[str]


class Panel:
    """Monitors of one sample.

    Args:
        monitors: who is asked.
        combine: what makes one number of all draws.
        kept: verdicts that need not be asked for again.
    """

    def __init__(
        self,
        monitors: Sequence[Monitor],
        combine: CombineRule = MAX,
        kept: VerdictCache | None = None,
    ) -> None:
        self._kept = kept
        self._members = [_Member(monitor, monitor.make(), monitor.needs()) for monitor in monitors]
        self._combine = combine
        self._shown = Shown()

    async def review(self, view: BlueView, draft: ChatMessageAssistant) -> Review:
        """Judge a draft after what ran so far; the verdicts are recorded under the draft's id.

        A draft all of whose calls are hidden from monitors (submitting) is skipped.
        """
        if not visible_calls(draft):
            return Review(None, skipped=True)
        inputs = MonitorInputs.of(view.environment, view.main_tasks)
        return await self.judge([*view.history, draft], inputs, draft.id)

    async def judge(
        self, messages: Sequence[ChatMessage], inputs: MonitorInputs, message_id: str | None
    ) -> Review:
        """Judge a conversation and record the verdicts.

        Args:
            messages: turns and results; for an action its message comes last.
            inputs: what the monitors may know besides.
            message_id: the judged message; None for the whole trajectory.
        """
        shown = self._shown(messages)
        about = about_verdict(running_sample()[0], shown, inputs, message_id) if self._kept else None
        draws = [
            partial(self._draw, member, draw, shown, inputs, message_id, about)
            for member in self._members
            for draw in range(1, member.monitor.samples + 1)
        ]
        verdicts = tuple(await gather(draws))
        _record(verdicts)
        numbers = [verdict.value for verdict in verdicts if verdict.value is not None]
        return Review(self._combine.of(numbers), verdicts)

    def copy_verdicts(self, from_id: str, to_id: str) -> None:
        """Record a message's verdicts for the message that replaced it as well."""
        _record([replace(v, message_id=to_id) for v in recorded_verdicts() if v.message_id == from_id])

    async def _draw(
        self,
        member: _Member,
        draw: int,
        messages: Sequence[ChatMessage],
        inputs: MonitorInputs,
        message_id: str | None,
        about: Any,
    ) -> MonitorEntry:
        monitor = member.monitor
        which = f" ({draw})" if monitor.samples > 1 else ""
        key = self._kept.key(monitor, draw, about) if self._kept else None
        async with span(f"monitor: {monitor.name}{which}", type="ct_scope"):
            if self._kept and (known := self._kept.get(key)) is not None:
                transcript().info({"monitor": monitor.name, "kept": known}, source="eval")
                # It was paid for elsewhere: without this the monitor would seem to have cost nothing.
                role = f"{MONITOR_ROLE}/{monitor.name}"
                transcript().info({"component": "kept verdict", "usd": None, "role": role}, source="cost")
                return MonitorEntry(message_id, monitor.name, draw, known)
            with judging(monitor.name):
                try:
                    value = await call_monitor(member.function, member.needs, messages, inputs)
                except MonitorFailed as error:
                    if where := error.metadata.get("traceback"):
                        transcript().info({"monitor": monitor.name, "traceback": where}, source="eval")
                    attempts = error.metadata.get("attempts")
                    return MonitorEntry(message_id, monitor.name, draw, None, error.reason, attempts)
            if self._kept:
                self._kept.keep(key, value)
            return MonitorEntry(message_id, monitor.name, draw, value)


def about_verdict(
    sample_id: str, shown: Sequence[ChatMessage], inputs: MonitorInputs, message_id: str | None
) -> Any:
    """What a verdict depends on besides its monitor, as JSON."""
    conversation = [message.model_dump(mode="json", exclude={"id"}) for message in shown]
    return [sample_id, message_id, asdict(inputs), conversation]


def _record(verdicts: Sequence[MonitorEntry]) -> None:
    if (aside := _aside.get()) is not None:
        aside += verdicts
        return
    scores = store_as(MonitorScores)
    scores.items = [*scores.items, *(verdict.as_json() for verdict in verdicts)]
