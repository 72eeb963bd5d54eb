"""Where rates come from: the user's own file, then its cache or the viewer, then what genai-prices ships."""

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_tower import config
from control_tower.errors import ValidationError
from control_tower.models.demo_rates import BUILT_IN_RATES
from control_tower.models.rates import (
    Pricing,
    RateRow,
    Rates,
    RateTable,
    Tier,
    read_rates,
    spellings,
    undated,
)

FILE, CACHE, VIEWER, BUILT_IN = "file", "cache", "viewer", "built in"
GENAI_PRICES, UNPRICED = "genai-prices", "unpriced"

CACHE_NAME = "model_rates.json"

_PRICE_LISTS: dict[str, str] = {
    "anthropic": "anthropic",
    "azureai": "azure",
    "bedrock": "aws",
    "cloudflare": "cloudflare",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "google",
    "grok": "x-ai",
    "groq": "groq",
    "mistral": "mistral",
    "moonshot": "moonshotai",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "together": "together",
}
"""Inspect's providers and whose prices they have. A model that is served elsewhere has no list price."""


@dataclass(frozen=True)
class Priced:
    """A model, its prices, and where these were read."""

    model: str
    row: RateRow | None
    source: str


class Prices:
    """The prices of any model, from all sources, which are read once.

    Raises:
        OperationError: a rate file is named or present but cannot be read, or is empty.
        ValidationError: the source of prices is unknown.
    """

    def __init__(self, pricing: str | None = None) -> None:
        """Reads the sources.

        Args:
            pricing: `file`, `api` or `off`; the configured one when None.
        """
        pricing = pricing or config.get("pricing", "file")
        if pricing not in ("file", "api", "off"):
            raise ValidationError(f"CONTROL_TOWER_PRICING is {pricing!r}; it can be file, api or off")
        self._tables = None if pricing == "off" else _tables(api=pricing == "api")
        self._known: dict[str, Priced] = {}

    def priced(self, model: str) -> Priced:
        """The prices of a model, and their source.

        Args:
            model: its full name.
        """
        if model not in self._known:
            self._known[model] = self._look_up(model)
        return self._known[model]

    def find(self, model: str) -> Pricing | None:
        """The prices of a model; None when it is unpriced."""
        row = self.priced(model).row
        return row.pricing if row else None

    def table(self, models: Iterable[str]) -> RateTable:
        """A rate table of these models, by these names; those without a price have no row."""
        found = ((model, self.priced(model).row) for model in dict.fromkeys(models))
        rows = tuple(row.model_copy(update={"model": model}) for model, row in found if row)
        return RateTable(rows=rows, captured_at=datetime.datetime.now(datetime.UTC).date())

    def _look_up(self, model: str) -> Priced:
        if self._tables is None:
            return Priced(model, None, UNPRICED)
        for source, table in self._tables:
            if row := table.row(model):
                return Priced(model, row, source)
        pricing = _list_price(model)
        if pricing is None:
            return Priced(model, None, UNPRICED)
        return Priced(model, RateRow(model=model, pricing=pricing), GENAI_PRICES)


def known_models() -> list[str]:
    """Full names of the models that have an alias, and of the demo's."""
    from control_tower.models.aliases import ALIASES
    from control_tower.models.openrouter import routed

    built_in = [row.model for row in BUILT_IN_RATES if row.model.startswith("demo/")]
    return [*(routed(name) for name in sorted(ALIASES.values())), *built_in]


def price_list() -> tuple[RateRow, ...]:
    """The prices of all known models that have one, as a viewer gives them out.

    Raises:
        OperationError: A rate file cannot be read.
    """
    return Prices("file").table(known_models()).rows


def take_viewer_rates(read: Callable[[], RateTable]) -> None:
    """Says how a viewer's table is read, where CONTROL_TOWER_PRICING is `api`."""
    _readers[:] = [read]


_readers: list[Callable[[], RateTable]] = []


def _tables(*, api: bool) -> list[tuple[str, RateTable]]:
    named, cached = config.get("model_rates"), config.cache_dir() / CACHE_NAME
    tables = [(FILE, read_rates(Path(named)))] if named else []
    if api:
        tables += [(VIEWER, read()) for read in _readers]
    elif cached.is_file():
        tables.append((CACHE, read_rates(cached)))
    return [*tables, (BUILT_IN, RateTable(rows=BUILT_IN_RATES))]


def _list_price(model: str) -> Pricing | None:
    """A model's price in the list of who serves it."""
    provider, _, rest = model.partition("/")
    if provider not in _PRICE_LISTS:
        return None
    from genai_prices.data_snapshot import get_snapshot

    for name in spellings(rest):
        try:
            _, info = get_snapshot().find_provider_model(name, None, _PRICE_LISTS[provider], None)
        except LookupError:
            continue
        # genai-prices matches by prefix as well; a price is taken only for the model itself.
        itself = {undated(spelling).lower() for spelling in spellings(name)}
        if undated(info.id).lower() in itself or name.lower() in _whole_names(info.match):
            return _pricing(info.get_prices(datetime.datetime.now(datetime.UTC)))
    return None


def _whole_names(clause: Any) -> Iterator[str]:
    """The names that a rule of genai-prices matches as a whole."""
    if name := getattr(clause, "equals", None):
        yield str(name).lower()
    for part in getattr(clause, "or_", ()):
        yield from _whole_names(part)


def _pricing(prices: Any) -> Pricing | None:
    """The prices of a model, with a tier for every length of prompt at which one of them changes."""
    uncached, output = prices.input_mtok, prices.output_mtok
    if uncached is None or output is None:
        return None
    read = uncached if prices.cache_read_mtok is None else prices.cache_read_mtok
    write = uncached if prices.cache_write_mtok is None else prices.cache_write_mtok
    kinds = (uncached, output, read, write)
    starts = sorted({int(tier.start) for kind in kinds for tier in getattr(kind, "tiers", ())})
    base = _rates(*(_price(kind, 0) for kind in kinds))
    tiers = [
        Tier(**_rates(*(_price(kind, start) for kind in kinds)).model_dump(), max_input_tokens=limit)
        for start, limit in zip([0, *starts], [*starts, None], strict=True)
    ]
    return Pricing(**base.model_dump(), tiers=tuple(tiers) if starts else None)


def _rates(uncached: float, output: float, read: float, write: float) -> Rates:
    return Rates(
        input_per_million=uncached,
        output_per_million=output,
        cached_input_per_million=read,
        cache_write_multiplier=write / uncached if uncached else 1.0,
    )


def _price(kind: Any, start: int) -> float:
    """What a prompt just longer than `start` tokens pays."""
    reached = [tier.price for tier in getattr(kind, "tiers", ()) if tier.start <= start]
    return float(reached[-1] if reached else getattr(kind, "base", kind))
