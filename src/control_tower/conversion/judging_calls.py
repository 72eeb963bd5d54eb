"""The models' calls behind a recorded verdict, and the agent's usage without those that it includes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from control_tower.conversion.carriers import Placed
from control_tower.conversion.old_verdict import OldVerdict
from control_tower.logs.json_text import JsonObject, child

_TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "input_tokens_cache_read",
}
_SPENT = ("input_tokens", "output_tokens", "input_tokens_cache_read", "input_tokens_cache_write")


@dataclass(frozen=True)
class JudgingCall:
    """One call of a model by a monitor."""

    model: str
    prompt: str | None
    value: float | None
    """From 0 to 10."""
    explanation: str | None
    usage: JsonObject | None
    """None when the record states neither tokens nor cost."""
    unpriced: bool = False
    """Whether the record says that the call cost something it does not know."""


def judging_calls(placed: Placed, model_usage: JsonObject) -> list[JudgingCall]:
    """The calls behind a verdict: one, or one for each member or model of an ensemble."""
    return _calls(placed.verdict, model_usage)


def without_live(usage: JsonObject, live: Sequence[JudgingCall]) -> JsonObject | None:
    """A model's usage without that of live monitors' calls on it.

    Returns:
        None when nothing is left; empty when they claim more than there is, so that the rest is unknown.
    """
    if not live:
        return usage
    rest = dict(usage)
    for call in live:
        for key, count in (call.usage or {}).items():
            if key != "total_cost":
                rest[key] = (rest.get(key) or 0) - count
    costs = [(call.usage or {}).get("total_cost") for call in live]
    if rest.get("total_cost") is not None:
        known = [cost for cost in costs if cost is not None]
        rest["total_cost"] = round(rest["total_cost"] - sum(known), 9) if len(known) == len(costs) else None
    if any(isinstance(count, int | float) and count < 0 for count in rest.values()):
        return {}
    return rest if any(rest.get(key) for key in _SPENT) else None


def _calls(verdict: OldVerdict, model_usage: JsonObject) -> list[JudgingCall]:
    facts = verdict.facts
    usage = _usage(facts)
    by_model = child(facts, "cost_by_model")
    if verdict.members and usage is None:
        return [call for member in verdict.members for call in _calls(member, model_usage)]
    if len(by_model) > 1:
        costs: list[JsonObject | None] = [
            None if usd is None else {**_no_tokens(), "total_cost": usd} for usd in by_model.values()
        ]
        # The tokens are known in sum only, so they are stated once.
        tokens = {key: count for key, count in (usage or {}).items() if key != "total_cost"}
        costs[0] = {**(costs[0] or _no_tokens()), **tokens} if tokens else costs[0]
        models = [_model(name, model_usage) for name in by_model]
        return [
            replace(_call(verdict, model, cost), unpriced=usd is None)
            for model, cost, usd in zip(models, costs, by_model.values(), strict=True)
        ]
    named = facts.get("model_name") or next(iter(by_model), None)
    return [_call(verdict, _model(named, model_usage), usage)]


def _call(verdict: OldVerdict, model: str, usage: JsonObject | None) -> JudgingCall:
    prompt = verdict.facts.get("monitor_prompt")
    explanation = verdict.explanation or verdict.facts.get("error")
    return JudgingCall(
        model,
        None if prompt is None else str(prompt),
        verdict.value,
        None if explanation is None else str(explanation),
        usage,
    )


def _usage(facts: JsonObject) -> JsonObject | None:
    usage: JsonObject = {
        name: facts[key] for key, name in _TOKENS.items() if isinstance(facts.get(key), int | float)
    }
    if usage:
        usage = {**_no_tokens(), **usage, "total_tokens": sum(usage.values())}
    if isinstance(facts.get("cost_usd"), int | float):
        usage = {**(usage or _no_tokens()), "total_cost": facts["cost_usd"]}
    return usage or None


def _no_tokens() -> JsonObject:
    return {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


def _model(name: Any, model_usage: JsonObject) -> str:
    """The full name of a model: monitors were recorded without their provider."""
    if not name:
        return "none/none"
    text = str(name)
    if text in model_usage:
        return text
    return next((full for full in model_usage if full.endswith(f"/{text}")), text)
