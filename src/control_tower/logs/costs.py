"""What the calls in a log cost: by role and model, as recorded and at today's rates, nothing hidden.

The *recorded* cost of a call is what Inspect stamped on it; an answer from the response cache cost nothing.
The *fresh* cost is what the call would cost now, asked anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from control_tower.logs.archive import EvalArchive
from control_tower.logs.events import SEAT_PREFIX
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.usage import Usage, usage_of
from control_tower.models.cost import NO_ROLE, Cost, cost_of_usage
from control_tower.models.rates import Pricing

CostsByRole = dict[str, dict[str, Cost]]
"""Role to model (or the component of a cost event) to cost."""

FindPrice = Callable[[str], Pricing | None]
"""A model's prices by its full name, None when it is unpriced; `Prices.find` is one."""

_COSTLESS = (SEAT_PREFIX, "scripted/")
"""Models that answer from this process: the seat, and policies that play a script."""

_CACHE_FOR_AN_HOUR = ("anthropic/", "litellm-proxy/")
"""Providers that write to the prompt cache for five minutes or, dearer, for an hour."""


@dataclass(frozen=True)
class Payment:
    """A call of a model, or a cost event, and who it was for."""

    role: str
    model: str
    """Of a cost event the component that was paid."""
    cost: Cost
    cached: bool = False
    """Whether the answer came from the response cache."""
    tokens: int = 0
    """What the provider counted for it now; 0 of an answer from the response cache."""


def payment(event: JsonObject, find: FindPrice | None = None) -> Payment | None:
    """What an event cost; None when it is no payment: a seat turn, a scripted answer, anything else.

    Args:
        event: as logged.
        find: prices at which to price it anew; None takes the recorded cost.
    """
    if event.get("event") == "info" and event.get("source") == "cost":
        return _service(child(event, "data"))
    model = str(event.get("model"))
    if event.get("event") != "model" or model.startswith(_COSTLESS):
        return None
    output = child(event, "output")
    usage = child(output, "usage")
    cached = event.get("cache") == "read"
    if not usage:
        # A request that failed is not billed; an answer without counts is.
        cost = Cost(None, incomplete=bool(event.get("pending") or children(output, "choices")))
        cost = Cost(0.0) if cached and find is None else cost
    elif find is not None:
        cost = _fresh(model, usage, find)
    else:
        cost = Cost(0.0) if cached else cost_of_usage(usage)
    tokens = 0 if cached else int(usage.get("total_tokens") or 0)
    return Payment(str(event.get("role") or NO_ROLE), model, cost, cached, tokens)


def payments(events: Iterable[JsonObject], find: FindPrice | None = None) -> Iterator[Payment]:
    """What the events of a sample cost; see `payment`."""
    return (paid for event in events if (paid := payment(event, find)))


def sample_costs(sample: JsonObject) -> CostsByRole:
    """The recorded costs of a sample, with what it counts of a model beyond the calls among its events."""
    costs: CostsByRole = {}
    seen: dict[str, tuple[Cost, int]] = {}
    for paid in payments(children(sample, "events")):
        _add(costs, paid.role, paid.model, paid.cost)
        _see(seen, paid)
    for model, rest in _beyond(usage_of(sample, "model_usage"), seen):
        _add(costs, NO_ROLE, model, rest)
    return costs


@dataclass
class LogCosts:
    """What a log came to."""

    recorded: CostsByRole = field(default_factory=CostsByRole)
    fresh: CostsByRole = field(default_factory=CostsByRole)
    """At the prices given; empty when none were."""
    cached: int = 0
    """Answers that came from the response cache, and are in `fresh` only."""


def total(costs: CostsByRole) -> Cost:
    """The sum over all roles and models."""
    return sum((cost for models in costs.values() for cost in models.values()), Cost())


def by_role(costs: CostsByRole) -> dict[str, Cost]:
    """The sum of each role."""
    return {role: sum(models.values(), Cost()) for role, models in costs.items()}


def by_model(costs: CostsByRole) -> dict[str, Cost]:
    """The sum of each model over the roles."""
    sums: dict[str, Cost] = {}
    for models in costs.values():
        for model, cost in models.items():
            sums[model] = sums.get(model, Cost()) + cost
    return sums


def log_costs(
    archive: EvalArchive,
    find: FindPrice | None = None,
    look: Callable[[JsonObject], None] = lambda sample: None,
) -> LogCosts:
    """The costs of a log, read one sample at a time.

    What the header counts beyond the samples' calls, such as those of attempts that were retried, stands
    under `no role`.

    Args:
        archive: the log.
        find: prices for the fresh cost; None leaves it out.
        look: is shown each sample, so that nobody else has to read them all again.

    Raises:
        DamagedArchive: a sample is not readable.
    """
    costs = LogCosts()
    seen: dict[str, tuple[Cost, int]] = {}
    for key in archive.sample_keys():
        sample = archive.sample(key)
        look(sample)
        events = children(sample, "events")
        for paid in payments(events):
            _add(costs.recorded, paid.role, paid.model, paid.cost)
            costs.cached += paid.cached
            _see(seen, paid)
        for paid in payments(events, find) if find else ():
            _add(costs.fresh, paid.role, paid.model, paid.cost)
    spent = usage_of(child(archive.header(), "stats"), "model_usage")
    for model, rest in _beyond(spent, seen):
        _add(costs.recorded, NO_ROLE, model, rest)
        if find:
            _add(costs.fresh, NO_ROLE, model, rest)
    return costs


def _see(seen: dict[str, tuple[Cost, int]], paid: Payment) -> None:
    cost, tokens = seen.get(paid.model, (Cost(), 0))
    seen[paid.model] = cost + paid.cost, tokens + paid.tokens


def _beyond(spent: Usage, seen: dict[str, tuple[Cost, int]]) -> Iterator[tuple[str, Cost]]:
    """What is counted of a model beyond its calls in the samples."""
    for model, usage in spent.items():
        cost, tokens = seen.get(model, (Cost(), 0))
        if usage.get("total_tokens", 0) > tokens:
            everything = cost_of_usage(usage)
            known = everything.usd is not None and not cost.incomplete
            rest = max(0.0, (everything.usd or 0.0) - (cost.usd or 0.0)) if known else None
            yield model, Cost(rest, incomplete=not known)


def _service(data: JsonObject) -> Payment:
    usd = data.get("usd")
    cost = Cost(None, incomplete=True) if usd is None else Cost(float(usd))
    return Payment(str(data.get("role") or NO_ROLE), str(data.get("component")), cost)


def _fresh(model: str, usage: JsonObject, find: FindPrice) -> Cost:
    pricing = find(model)
    if pricing is None:
        return cost_of_usage({**usage, "total_cost": None})
    minutes, hour = (pricing.dollars(usage, hour=hour) for hour in (False, True))
    stamped = usage.get("total_cost")
    if minutes == hour or not model.startswith(_CACHE_FOR_AN_HOUR):
        return Cost(minutes)
    # Logs do not say for how long the prompt was cached; the stamp does, at the same rates.
    if stamped is not None and math.isclose(stamped, hour, rel_tol=1e-6):
        return Cost(hour)
    return Cost(minutes, incomplete=stamped is None or not math.isclose(stamped, minutes, rel_tol=1e-6))


def _add(costs: CostsByRole, role: str, model: str, cost: Cost) -> None:
    models = costs.setdefault(role, {})
    models[model] = models.get(model, Cost()) + cost
