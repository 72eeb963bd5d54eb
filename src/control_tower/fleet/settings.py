"""What the user wants of a fleet: the keys of `--fleet-arg`, strictly checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_tower.arguments import parse_arguments, parse_key_values
from control_tower.errors import StateError, UsageError
from control_tower.fleet.machines import Size
from control_tower.fleet.outcomes import Limits
from control_tower.fleet.reconcile import Policy

OPTION = "--fleet-arg"

_OTHER_NAMES = {"max_workers": "workers", "concurrency_per_worker": "slots"}
"""Keys by the names that they have for fleets elsewhere."""

_NOT_HERE = {
    **dict.fromkeys(
        ("instance_type", "region", "spot", "ami", "worker_user", "worker_setup", "market", "disk_gb"),
        "is for fleets on EC2; a fleet on this machine has no such thing",
    ),
    "estimate": "costs are not estimated; --smoke plays one sample of each stream, which shows its cost",
}


class FleetSettings(BaseModel):
    """A fleet on this machine; frozen in its plan, and what `ct fleet set` changes stands in the store."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    workers: int = Field(default=2, ge=1, le=256)
    """Worker processes at most."""
    initial_workers: int | None = Field(default=None, ge=1)
    """Workers at the start; all of them when not given."""
    slots: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), ge=1)
    """Samples a worker plays at once."""
    budget_usd: float | None = Field(default=None, gt=0)
    """USD after which nothing new begins."""
    budget_hard_usd: float | None = Field(default=None, gt=0)
    """USD after which what runs is ended; nothing new begins either."""
    budget_unpriced: Literal["refuse", "ok"] = "refuse"
    """Whether a budget may be set though the cost of some model is not known."""
    max_failures: int = Field(default=3, ge=1)
    """Failures of a job after which it has failed."""
    max_infra: int = Field(default=10, ge=1)
    """Lost workers under a job after which it has failed."""
    idle_timeout: float = Field(default=120.0, gt=0)
    """Seconds without work after which a worker leaves."""
    ttl: float = Field(default=21600.0, gt=0)
    """Seconds after which a worker ends whatever happens, unless it sees that the fleet goes on."""
    attempt_timeout: float | None = Field(default=None, gt=0)
    """Seconds an attempt may take; what its own limits allow when not given."""
    new_fleet: bool = False
    """A fleet of its own, though one of the same jobs may exist."""
    detach: bool = False
    """Return when all jobs are offered; `ct fleet attach` comes back."""
    auto_confirm: bool = False
    """Nobody is there to end a pause, so it becomes the end after ten minutes."""

    @model_validator(mode="after")
    def _budgets_fit(self) -> Self:
        soft, hard = self.budget_usd, self.budget_hard_usd
        if soft is not None and hard is not None and hard < soft:
            raise ValueError(f"budget_hard_usd={hard:g} is less than budget_usd={soft:g}")
        return self

    @model_validator(mode="after")
    def _initial_fits(self) -> Self:
        if self.initial_workers is not None and self.initial_workers > self.workers:
            raise ValueError(f"initial_workers={self.initial_workers} is more than workers={self.workers}")
        return self

    def policy(self) -> Policy:
        """As the decision core takes it."""
        size = Size(self.workers, self.initial_workers or self.workers, self.slots, ("local",))
        limits = Limits(self.max_failures, self.max_infra)
        return Policy(limits, size, self.budget_usd, self.budget_hard_usd)


def parse_settings(items: Sequence[str], option: str = OPTION) -> FleetSettings:
    """Reads the `key=value` items of `--fleet-arg`.

    Args:
        items: What the user gave.
        option: Where, for errors.

    Raises:
        UsageError: A key is unknown, with the nearest one, is given twice, or its value is of no use.
    """
    given: dict[str, str] = {}
    for key, value in parse_key_values(items, option).items():
        name = _OTHER_NAMES.get(key, key)
        if key in _NOT_HERE:
            raise UsageError(f"{option} {key}: {_NOT_HERE[key]}")
        if name in given:
            raise UsageError(f"{option}: {key!r} means {name!r}, which is given as well")
        given[name] = value
    return parse_arguments(FleetSettings, given, option)


def check_budget(settings: FleetSettings, unpriced: Iterable[str]) -> None:
    """Refuses a budget that what is spent cannot be held against.

    Args:
        settings: With a budget or without.
        unpriced: Models of the run that have no price.

    Raises:
        StateError: There are any.
    """
    models = ", ".join(unpriced)
    budget = "budget_hard_usd" if settings.budget_usd is None else "budget_usd"
    if getattr(settings, budget) is not None and settings.budget_unpriced != "ok" and models:
        raise StateError(
            f"{budget} needs the price of {models}: give it in a rate table, "
            f"CONTROL_TOWER_MODEL_RATES=FILE, or say {OPTION} budget_unpriced=ok"
        )
