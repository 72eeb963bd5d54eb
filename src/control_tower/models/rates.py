"""The rate table: what a million tokens of a model cost, and where that is read from.

A user's own file comes first, then the user's cache, then the snapshot that genai-prices ships.
A model that none of them knows is unpriced: never free, and never priced as a model of a similar name.
"""

import datetime
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pydantic
from pydantic import BaseModel, ConfigDict

from control_tower import config
from control_tower.errors import OperationError, ValidationError


class Rates(BaseModel):
    """Prices in USD of a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_per_million: float
    output_per_million: float
    cached_input_per_million: float
    """Input read from the provider's prompt cache."""
    cache_write_multiplier: float = 1.0
    """Price of input written to the cache for five minutes, as a multiple of the input price."""


class Tier(Rates):
    """Prices of calls whose whole prompt has at most so many tokens."""

    max_input_tokens: int | None
    """None is the tier of all longer prompts."""


class Pricing(Rates):
    """A model's standard prices, and those of long prompts where they differ."""

    tiers: tuple[Tier, ...] | None = None


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
        by_name: dict[str, Pricing] = {}
        for row in self.rows:
            by_name.setdefault(row.model, row.pricing)
        for name in spellings(model):
            if name in by_name:
                return by_name[name]
        return self._dated(model, by_name)

    def _dated(self, model: str, by_name: dict[str, Pricing]) -> Pricing | None:
        """An undated name may mean the one dated row of that name."""
        for name in spellings(model):
            dated = [known for known in by_name if undated(known) == name and known != name]
            if len(dated) == 1:
                return by_name[dated[0]]
        return None


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


def load_rates(models: Iterable[str]) -> RateTable:
    """The rates of a run's models.

    Args:
        models: full model names.

    Raises:
        OperationError: a rate file is named or present but cannot be read.
        ValidationError: the source of prices is unknown.
    """
    pricing = config.get("pricing", "file")
    if pricing == "off":
        return RateTable()
    if pricing != "file":
        raise ValidationError(f"CONTROL_TOWER_PRICING is {pricing!r}; it can be file or off")
    rows: list[RateRow] = []
    for path in _rate_files():
        rows += read_rates(path).rows
    known = RateTable(rows=tuple(rows))
    rows += [
        row for model in dict.fromkeys(models) if known.find(model) is None for row in _snapshot_rows(model)
    ]
    return RateTable(rows=tuple(rows))


def read_rates(path: Path) -> RateTable:
    """Read a rate table.

    Raises:
        OperationError: it is missing, no JSON, or not of the shape of a rate table.
    """
    try:
        return RateTable.model_validate_json(path.read_bytes())
    except OSError as error:
        raise OperationError(f"cannot read the rate table {path}: {error.strerror}") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise OperationError(f"{path} is no rate table: {where}: {first['msg']}") from error


def _rate_files() -> list[Path]:
    named = config.get("model_rates")
    cached = config.cache_dir() / "model_rates.json"
    return ([Path(named)] if named else []) + ([cached] if cached.is_file() else [])


def _snapshot_rows(model: str) -> list[RateRow]:
    if model.startswith("demo/"):
        from control_tower.models.demo_rates import DEMO_RATES

        return [row for row in DEMO_RATES if row.model == model]
    return _genai_rows(model)


def _genai_rows(model: str) -> list[RateRow]:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    for name in spellings(model):
        try:
            _, info = snapshot.find_provider_model(name, None, None, None)
        except LookupError:
            continue
        # genai-prices matches by prefix as well; a row is taken only for the model itself.
        if undated(info.id) in {undated(spelling) for spelling in spellings(name)}:
            prices = info.get_prices(datetime.datetime.now(datetime.UTC))
            row = _row(model, prices)
            return [row] if row else []
    return []


def _row(model: str, prices: object) -> RateRow | None:
    input_price = _base(getattr(prices, "input_mtok", None))
    output_price = _base(getattr(prices, "output_mtok", None))
    if input_price is None or output_price is None:
        return None
    read = _base(getattr(prices, "cache_read_mtok", None))
    write = _base(getattr(prices, "cache_write_mtok", None))
    multiplier = write / input_price if write is not None and input_price else 1.0
    pricing = Pricing(
        input_per_million=input_price,
        output_per_million=output_price,
        cached_input_per_million=input_price if read is None else read,
        cache_write_multiplier=multiplier,
    )
    return RateRow(model=model, pricing=pricing)


def _base(price: object) -> float | None:
    if price is None:
        return None
    return float(getattr(price, "base", price))  # pyright: ignore[reportArgumentType]
