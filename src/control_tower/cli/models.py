"""`ct models`: short names of models, and what a million of their tokens costs."""

from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.group import Group
from control_tower.cli.list import list_models
from control_tower.cli.output import Format, format_option, print_rows

if TYPE_CHECKING:
    from control_tower.models.rate_sources import Priced, Prices
    from control_tower.models.rates import Rates


@click.group(cls=Group)
def models() -> None:
    """List model aliases and prices."""


models.add_command(list_models, "list")


@models.command("rates")
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--write", "path", metavar="FILE", help="Write a rate table that CONTROL_TOWER_MODEL_RATES reads."
)
@format_option("table", "json")
def rates(names: tuple[str, ...], path: str | None, output_format: Format) -> None:
    """Show what models cost in USD per million tokens, and where the price was read.

    MODELs are full names or aliases; all aliases and the demo's models when left out. A model of several
    lines costs more from a certain length of the prompt on.
    """
    from control_tower.cli.run import take_viewer_rates_if_configured
    from control_tower.config import load_dotenv
    from control_tower.models.rate_sources import Prices

    load_dotenv()
    take_viewer_rates_if_configured()
    prices = Prices()
    priced = [prices.priced(name) for name in dict.fromkeys(_full_names(names))]
    if output_format == "json":
        print_rows([_record(each) for each in priced], output_format)
    else:
        print_rows([line for each in priced for line in _lines(each)], output_format)
    if path:
        _write(path, prices, priced)


def _full_names(names: tuple[str, ...]) -> list[str]:
    from control_tower.errors import UsageError
    from control_tower.models.aliases import model_name
    from control_tower.models.openrouter import routed
    from control_tower.models.rate_sources import known_models

    if not names:
        return known_models()
    try:
        return [routed(model_name(name)) for name in names]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _record(priced: "Priced") -> dict[str, Any]:
    row = priced.row
    return {
        "model": priced.model,
        "source": priced.source,
        "manual": row.manual if row else None,
        "pricing": row.pricing.model_dump() if row else None,
    }


def _lines(priced: "Priced") -> list[dict[str, Any]]:
    """A line of the table for each length of prompt with prices of its own."""
    if priced.row is None:
        return [{"model": priced.model, **dict.fromkeys(_COLUMNS), "source": priced.source}]
    pricing = priced.row.pricing
    if pricing.tiers is None:
        return [_line(priced, "any", pricing)]
    limits = [tier.max_input_tokens for tier in pricing.tiers]
    longest = [f"up to {limit:,}" if limit is not None else "longer" for limit in limits]
    return [_line(priced, prompt, tier) for prompt, tier in zip(longest, pricing.tiers, strict=True)]


_COLUMNS = ("prompt", "input", "cache_read", "cache_write", "output")


def _line(priced: "Priced", prompt: str, rates: "Rates") -> dict[str, Any]:
    dollars = (
        rates.input_per_million,
        rates.cached_input_per_million,
        rates.cache_write_per_million,
        rates.output_per_million,
    )
    cells = zip(_COLUMNS, (prompt, *(f"{amount:.10g}" for amount in dollars)), strict=True)
    return {"model": priced.model, **dict(cells), "source": priced.source}


def _write(path: str, prices: "Prices", priced: "list[Priced]") -> None:
    from pathlib import Path

    from control_tower.errors import OperationError

    without = [each.model for each in priced if each.row is None]
    if len(without) == len(priced):
        raise OperationError(f"none of these models has a price, so {path} would be empty")
    table = prices.table(each.model for each in priced)
    try:
        Path(path).write_text(table.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OperationError(f"cannot write {path}: {error.strerror}") from error
    if without:
        click.echo(f"Not in {path}, for want of a price: {', '.join(without)}", err=True)
