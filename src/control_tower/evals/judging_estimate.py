"""What judging a log would cost, worked out without asking a model: calls, prompt tokens, money."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspect_ai.model import ChatMessage
from inspect_ai.util import json_schema

from control_tower.evals.post_hoc_monitor import Judging, verdict_cache
from control_tower.models.cost import Cost
from control_tower.models.judging import Form
from control_tower.models.rate_sources import Prices
from control_tower.models.roles import TRUSTED, RoleSpec
from control_tower.monitors.config import MONITOR_ROLE, Monitor
from control_tower.monitors.monitor import MonitorFailed, MonitorInputs, call_monitor
from control_tower.monitors.panel import about_verdict
from control_tower.monitors.prompted import counting
from control_tower.monitors.registry import monitors as registry
from control_tower.monitors.shown import Shown

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_ANSWER = 200
TOKENS_BESIDE = 300
"""Of the form that a judge fills in."""


@dataclass(frozen=True)
class MonitorEstimate:
    """What one monitor would cost."""

    monitor: str
    model: str | None
    """None for a monitor that asks no model."""
    verdicts: int
    kept: int
    """Verdicts that need not be asked for again."""
    calls: int
    prompt_tokens: int
    cost: Cost
    """Incomplete where the model has no price, or where a monitor's own code asks."""

    def as_json(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return {**vars(self), "cost": self.cost.as_json()}


def estimate(judging: Judging, roles: Mapping[str, RoleSpec]) -> list[MonitorEstimate]:
    """What each monitor would cost, if every first answer is readable and no prompt cache helps."""
    counts = [_Counted(monitor, roles) for monitor in judging.monitors]
    kept = verdict_cache(judging, roles)
    for key in judging.keys:
        conversations, inputs = judging.judged(key)
        shown = Shown()
        sample_id = f"{key.id} epoch {key.epoch}"
        for count in counts:
            count.start()
        for judged in conversations:
            messages = shown(judged.messages)
            message_id = None if judged.index is None else str(judged.index)
            about = about_verdict(sample_id, messages, inputs, message_id)
            for count in counts:
                for draw in range(1, count.monitor.samples + 1):
                    known = kept.get(kept.key(count.monitor, draw, about)) is not None
                    count.verdict(messages, inputs, known=known)
    return [count.total() for count in counts]


class _Counted:
    """The requests of one monitor."""

    def __init__(self, monitor: Monitor, roles: Mapping[str, RoleSpec]) -> None:
        self.monitor = monitor
        entry = registry.get(monitor.monitor) if monitor.monitor else None
        self._ours = entry is None or "prompt" in entry.metadata
        wanted = next(iter(monitor.roles), None)
        role = TRUSTED if wanted == MONITOR_ROLE and MONITOR_ROLE not in roles else wanted
        self._model = roles[role].full_name if role is not None and role in roles else None
        self._pricing = Prices().find(self._model) if self._model else None
        self._verdicts = self._kept = self._calls = self._tokens = 0
        self._usd = 0.0

    def start(self) -> None:
        """Begin with another sample."""
        self._function = self.monitor.make()
        self._needs = self.monitor.needs()

    def verdict(self, messages: Sequence[ChatMessage], inputs: MonitorInputs, *, known: bool) -> None:
        """Count what one draw would ask."""
        self._verdicts += 1
        self._kept += known
        if known or self._model is None:
            return
        if not self._ours:
            self._calls += 1
            return
        token = counting.set(self._count)
        try:
            asyncio.run(_asked(call_monitor(self._function, self._needs, messages, inputs)))
        finally:
            counting.reset(token)

    def total(self) -> MonitorEstimate:
        """What it comes to."""
        unknown = self._calls > 0 and (self._pricing is None or not self._ours)
        cost = Cost(None if self._pricing is None or not self._calls else self._usd, unknown)
        return MonitorEstimate(
            self.monitor.name, self._model, self._verdicts, self._kept, self._calls, self._tokens, cost
        )

    def _count(self, role: str, request: list[ChatMessage], form: Form[Any]) -> Any:
        tokens = sum(len(message.text) for message in request) // CHARACTERS_PER_TOKEN + TOKENS_BESIDE
        self._calls += 1
        self._tokens += tokens
        if self._pricing is not None:
            rates = self._pricing.at(tokens)
            self._usd += tokens * rates.input_per_million / 1e6
            self._usd += TOKENS_PER_ANSWER * rates.output_per_million / 1e6
        return form.fields.model_validate(_any_answer(form))


async def _asked(verdict: Any) -> None:
    try:
        await verdict
    except MonitorFailed:
        return


def _any_answer(form: Form[Any]) -> dict[str, Any]:
    """A form filled in anyhow."""
    answers: dict[str, Any] = {}
    for name, schema in (json_schema(form.fields).properties or {}).items():
        if schema.enum:
            answers[name] = schema.enum[0]
        else:
            answers[name] = {"integer": 0, "boolean": False}.get(str(schema.type), "")
    return answers
