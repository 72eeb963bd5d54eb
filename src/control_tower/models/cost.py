"""Money: registering rates with Inspect, and adding up what a run cost without hiding what is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from control_tower.models.rates import RateTable


@dataclass(frozen=True)
class Cost:
    """An amount in USD, and whether something is missing from it."""

    usd: float | None = None
    incomplete: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        known = [cost.usd for cost in (self, other) if cost.usd is not None]
        return Cost(sum(known) if known else None, self.incomplete or other.incomplete)

    def __str__(self) -> str:
        if self.usd is None:
            return "unpriced" if self.incomplete else "—"
        return f"${self.usd:,.4f}" + ("+" if self.incomplete else "")


def register_rates(models: Iterable[str], rates: RateTable) -> list[str]:
    """Tell Inspect the standard prices of a run's models, so that it stamps each call's cost.

    Returns:
        The models that have no price.
    """
    from inspect_ai.model import ModelCost, ModelInfo, get_model_info, set_model_info

    unpriced: list[str] = []
    for model in dict.fromkeys(models):
        pricing = rates.find(model)
        info = get_model_info(model) or ModelInfo()
        if pricing is None:
            unpriced.append(model)
            set_model_info(model, info.model_copy(update={"cost": None}))
            continue
        cost = ModelCost(
            input=pricing.input_per_million,
            output=pricing.output_per_million,
            input_cache_read=pricing.cached_input_per_million,
            input_cache_write=pricing.input_per_million * pricing.cache_write_multiplier,
        )
        set_model_info(model, info.model_copy(update={"cost": cost}))
    return unpriced


def price_no_model() -> None:
    """Price the model that stands in for a run's main one: Inspect wants all prices for a cost limit."""
    from inspect_ai.model import ModelCost, ModelInfo, set_model_info

    nothing = ModelCost(input=0, output=0, input_cache_read=0, input_cache_write=0)
    set_model_info("none/none", ModelInfo(cost=nothing))


def cost_of_usage(usage: Mapping[str, Any]) -> Cost:
    """The cost that Inspect stamped on a usage record; tokens without a price make it incomplete."""
    usd = usage.get("total_cost")
    if usd is None:
        return Cost(None, incomplete=bool(usage.get("total_tokens")))
    return Cost(float(usd))


NO_ROLE = "no role"
"""Whose calls were made outside every role, such as by a scorer's own model."""


def costs_by_role(
    role_usage: Mapping[str, Mapping[str, Any]], model_usage: Mapping[str, Mapping[str, Any]]
) -> dict[str, Cost]:
    """The cost of each role of a log's stats, and of what was asked outside every role.

    Args:
        role_usage: usage by role.
        model_usage: usage by model, of all calls.
    """
    costs = {role: cost_of_usage(usage) for role, usage in role_usage.items()}
    outside = _tokens(model_usage) - _tokens(role_usage)
    if outside > 0:
        everything = sum(map(cost_of_usage, model_usage.values()), Cost())
        known = sum(costs.values(), Cost())
        incomplete = everything.incomplete or known.incomplete
        usd = None if incomplete else (everything.usd or 0.0) - (known.usd or 0.0)
        costs[NO_ROLE] = Cost(usd, incomplete)
    return costs


def _tokens(usages: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(int(usage.get("total_tokens") or 0) for usage in usages.values())
