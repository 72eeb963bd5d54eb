"""The rate table: what a million tokens of a model cost, and how a model's name is looked up in it.

A model that no row is for is unpriced: never free, and never priced as a model of a similar name.
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field, field_validator

from control_tower.errors import OperationError

HOUR_WRITES = 1.6
"""How much dearer input is that is written to Anthropic's prompt cache for an hour, not five minutes."""


class Rates(BaseModel):
    """Prices in USD of a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_per_million: float = Field(ge=0, allow_inf_nan=False)
    output_per_million: float = Field(ge=0, allow_inf_nan=False)
    cached_input_per_million: float = Field(ge=0, allow_inf_nan=False)
    """Input read from the provider's prompt cache."""
    cache_write_multiplier: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Price of input written to the cache for five minutes, as a multiple of the input price."""

    @property
    def cache_write_per_million(self) -> float:
        """Input written to the provider's prompt cache for five minutes."""
        return self.input_per_million * self.cache_write_multiplier


class Tier(Rates):
    """Prices of calls whose whole prompt has at most so many tokens."""

    max_input_tokens: int | None
    """None is the tier of all longer prompts."""


class Pricing(Rates):
    """A model's standard prices, and those by the length of the prompt where they differ."""

    tiers: tuple[Tier, ...] | None = None

    @field_validator("tiers")
    @classmethod
    def _rising(cls, tiers: tuple[Tier, ...] | None) -> tuple[Tier, ...] | None:
        if tiers is not None:
            limits = [tier.max_input_tokens for tier in tiers]
            bounds = [limit for limit in limits[:-1] if limit is not None]
            if not limits or limits[-1] is not None or limits[:-1] != sorted(set(bounds)):
                raise ValueError("max_input_tokens of tiers must rise and end with null")
        return tiers

    def at(self, prompt_tokens: int) -> Rates:
        """The prices of a call.

        Args:
            prompt_tokens: its whole prompt, with what was read from and written to the prompt cache.
        """
        for tier in self.tiers or ():
            if tier.max_input_tokens is None or prompt_tokens <= tier.max_input_tokens:
                return tier
        return self

    def dollars(self, usage: Mapping[str, Any], *, hour: bool = False) -> float:
        """What one call cost.

        Args:
            usage: Inspect's counts: `input_tokens` are those neither read from nor written to the prompt
                cache, and `output_tokens` include the reasoning.
            hour: whether what was written to the prompt cache stays there for an hour.
        """
        rates = self.at(prompt_tokens(usage))
        written = rates.cache_write_per_million * (HOUR_WRITES if hour else 1)
        millionths = (
            _count(usage, "input_tokens") * rates.input_per_million
            + _count(usage, "input_tokens_cache_read") * rates.cached_input_per_million
            + _count(usage, "input_tokens_cache_write") * written
            + _count(usage, "output_tokens") * rates.output_per_million
        )
        return millionths / 1_000_000


def prompt_tokens(usage: Mapping[str, Any]) -> int:
    """The whole prompt of a call, from Inspect's counts."""
    parts = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    return sum(_count(usage, part) for part in parts)


def _count(usage: Mapping[str, Any], name: str) -> int:
    return int(usage.get(name) or 0)


class RateRow(BaseModel):
    """A model's prices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    pricing: Pricing
    manual: bool = False
    """Entered by hand rather than taken from a price list."""


class RateTable(BaseModel):
    """Prices of models; of two rows for one model the first counts."""

    model_config = ConfigDict(frozen=True)

    rows: tuple[RateRow, ...] = ()
    captured_at: datetime.date | None = None

    def find(self, model: str) -> Pricing | None:
        """The prices of a model under any of the spellings of its name, None when it is unpriced."""
        row = self.row(model)
        return row.pricing if row else None

    def row(self, model: str) -> RateRow | None:
        """The row that prices a model."""
        for name in spellings(model):
            if name in self._by_name:
                return self._by_name[name]
        # An undated name may mean the one dated row of that name.
        for name in spellings(model):
            dated = [known for known in self._by_name if undated(known) == name and known != name]
            if len(dated) == 1:
                return self._by_name[dated[0]]
        return None

    @cached_property
    def _by_name(self) -> dict[str, RateRow]:
        by_name: dict[str, RateRow] = {}
        for row in self.rows:
            by_name.setdefault(row.model, row)
        return by_name


def read_rates(path: Path) -> RateTable:
    """Read a rate table.

    Raises:
        OperationError: it is missing, no JSON, not of the shape of a rate table, or has no row.
    """
    try:
        table = RateTable.model_validate_json(path.read_bytes())
    except OSError as error:
        raise OperationError(f"cannot read the rate table {path}: {error.strerror}") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise OperationError(f"{path} is no rate table: {where}: {first['msg']}") from error
    if not table.rows:
        raise OperationError(f"the rate table {path} is empty: give it rows, or remove it")
    return table


_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


def undated(name: str) -> str:
    """A model's name without the date at its end."""
    return _DATE.sub("", name)


def spellings(model: str) -> Iterator[str]:
    """Names to look a model up by: suffixes of its path from the longest, as given, undated, dashed."""
    parts = model.split("/")
    for start in range(len(parts)):
        name = "/".join(parts[start:])
        for spelling in dict.fromkeys((name, undated(name))):
            yield spelling
            dashed = re.sub(r"(?<=\d)\.(?=\d)", "-", spelling)
            if dashed != spelling:
                yield dashed
