"""What listings print: a table for people, JSON for programs, on stdout."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import click

Format = Literal["table", "json", "jsonl", "csv"]
C = TypeVar("C", bound=Callable[..., Any])


def format_option(*formats: Format) -> Callable[[C], C]:
    """The option `--format` of a command.

    Args:
        formats: what may be chosen, the first is the default; all but csv when left out.
    """
    choices = formats or ("table", "json", "jsonl")
    meanings = {"table": "a table for people", "json": "one JSON value", "jsonl": "a line of JSON for each"}
    meanings["csv"] = "a table for programs"
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="; ".join(meanings[choice] for choice in choices) + ".",
    )


def print_rows(
    rows: Sequence[Mapping[str, Any]], output_format: Format, columns: Sequence[str] | None = None
) -> None:
    """Print a list.

    Args:
        rows: one record a line; programs get all of it.
        output_format: as chosen with `--format`.
        columns: the keys a person sees; all of the first row when left out.
    """
    if output_format == "json":
        click.echo(json.dumps([plain(row) for row in rows], indent=2))
    elif output_format == "jsonl":
        for row in rows:
            click.echo(json.dumps(plain(row)))
    elif output_format == "csv":
        _print_csv(rows, columns or list(rows[0] if rows else ()))
    elif rows:
        _print_table(rows, columns or list(rows[0]))
    else:
        click.echo("none", err=True)


def print_record(record: Mapping[str, Any], output_format: Format) -> None:
    """Print one record: `name: value` lines for a person, else one JSON object."""
    if output_format == "table":
        width = max(map(len, record), default=0)
        for key, value in record.items():
            click.echo(f"{key + ':':<{width + 1}} {_cell(value)}".rstrip())
    else:
        click.echo(json.dumps(plain(record), indent=2 if output_format == "json" else None))


def print_section(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a titled table for people; nothing when there are no rows."""
    if rows:
        click.echo(f"\n{title}")
        print_rows(rows, "table")


def printable(text: str) -> str:
    """A text that a terminal shows and does not obey: what is not to be seen is written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(value: object) -> Any:
    """A value as JSON can hold it: models and paths written out, NaN and infinity as null."""
    from pydantic_core import to_jsonable_python

    return _finite(to_jsonable_python(value, fallback=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not abs(value) <= sys.float_info.max:
        return None
    return value


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    console = Console(width=None if sys.stdout.isatty() else 1000, soft_wrap=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _print_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    import csv
    from io import StringIO

    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (row.get(column) for column in columns)
        writer.writerow(
            _cell(value) if isinstance(value, str | list | None) else plain(value) for value in values
        )
    click.echo(written.getvalue(), nl=False)


def _cell(value: Any) -> str:
    """A value in a table: nothing for None, lists with commas, one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return ", ".join(key if item is True else f"{key}={_cell(item)}" for key, item in items if item)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_cell(item) for item in cast("Sequence[Any]", value))
    return printable(" ".join(str(value).split()))
