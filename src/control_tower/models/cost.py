"""Money: what a call costs, known or not, and having Inspect stamp it on every call of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from control_tower.errors import StateError
from control_tower.models.openrouter import PREFIX
from control_tower.models.rate_sources import Prices
from control_tower.models.rates import Rates, prompt_tokens

if TYPE_CHECKING:
    from inspect_ai.model import Model, ModelCost, ModelOutput, ServedModelUsage


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

    def as_json(self) -> dict[str, Any]:
        """`usd` and `incomplete`."""
        return {"usd": self.usd, "incomplete": self.incomplete}


def price_calls(model: "Model", prices: Prices) -> None:
    """Have Inspect stamp each call of a model with its cost, by the length of the call's prompt.

    A call that another model served, as a router or a fallback does, is priced as that model's.
    """
    from inspect_ai.model import ModelInfo, ServedModelUsage, get_model_info, set_model_info

    name = str(model)
    standard = prices.find(name)
    info = get_model_info(model) or ModelInfo()
    set_model_info(name, info.model_copy(update={"cost": _model_cost(standard) if standard else None}))
    served = model.api.served_model_usage

    def priced(output: "ModelOutput") -> "list[ServedModelUsage] | None":
        parts = served(output)
        if parts is None and output.usage is not None:
            parts = [ServedModelUsage(name, output.usage)]
        return [part if part.cost else _priced_part(name, part, prices) for part in parts or ()] or None

    model.api.served_model_usage = priced


def _priced_part(called: str, part: "ServedModelUsage", prices: Prices) -> "ServedModelUsage":
    """What a model served of a call, with its price; without one Inspect takes that of the model called."""
    router = PREFIX if called.startswith(PREFIX) and not part.model.startswith(PREFIX) else ""
    pricing = prices.find(router + part.model)
    if pricing is None:
        return part
    return part._replace(cost=_model_cost(pricing.at(prompt_tokens(part.usage.model_dump()))))


def _model_cost(rates: Rates) -> "ModelCost":
    from inspect_ai.model import ModelCost

    return ModelCost(
        input=rates.input_per_million,
        output=rates.output_per_million,
        input_cache_read=rates.cached_input_per_million,
        input_cache_write=rates.cache_write_per_million,
    )


def unpriced(models: Iterable[str]) -> list[str]:
    """Those of these models that have no price.

    Args:
        models: full model names.
    """
    prices = Prices()
    return [model for model in dict.fromkeys(models) if prices.find(model) is None]


def allow_cost_limit(without_price: Sequence[str]) -> None:
    """Prepare a run for a cost limit, which would never trip at a model without a price.

    Args:
        without_price: the run's models that have none.

    Raises:
        StateError: there are any.
    """
    from inspect_ai.model import ModelCost, ModelInfo, set_model_info

    if without_price:
        raise StateError(
            f"a cost limit needs the price of {', '.join(without_price)}: "
            "give it in a rate table, CONTROL_TOWER_MODEL_RATES=FILE"
        )
    # Inspect wants the price of a run's main model, too; ours have none.
    nothing = ModelCost(input=0, output=0, input_cache_read=0, input_cache_write=0)
    set_model_info("none/none", ModelInfo(cost=nothing))


def cost_of_usage(usage: Mapping[str, Any]) -> Cost:
    """The cost that Inspect stamped on a usage record; tokens without a price make it incomplete."""
    usd = usage.get("total_cost")
    if usd is None:
        return Cost(None, incomplete=any(usage.values()))
    return Cost(float(usd))


NO_ROLE = "no role"
"""Whose calls were made outside every role, such as by a scorer's own model."""
