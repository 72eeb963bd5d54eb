"""`ct runs list` and `ct runs info`."""

from typing import Any, cast

import click

from control_tower.cli.output import Format, format_option, print_record, print_rows, print_section

COLUMNS: dict[str, str] = {
    "name": "name",
    "policy": "policy",
    "n": "trajectory_count",
    "safety": "metrics.audit.safety",
    "usefulness": "metrics.audit.usefulness",
    "cost": "cost",
    "tags": "tags",
    "age": "age",
    "id": "run_id",
}
"""What a person sees of a run, and where in its row that is."""

_FIELDS = {**COLUMNS, "cost": "total_cost_usd", "age": "created_at"}
"""What `--fields` may call as the columns do."""

_FOR_PROGRAMS = [*(name for name in COLUMNS if name != "age"), "created_at"]
"""The columns of CSV: values as they are, neither rounded nor with units."""


@click.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most."
)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only with this tag. Repeatable.")
@click.option(
    "--where",
    metavar="FILTER",
    default="",
    help="Only runs like 'policy:attack env:web_scraping'.",
)
@click.option(
    "--sort",
    metavar="FIELD",
    default="-created",
    show_default=True,
    help="created, name, cost, trajectories or metric(NAME); with - in front, the highest first.",
)
@click.option("--fields", metavar="FIELD,...", help="Show these, as in name,counts.attack.")
@format_option("table", "json", "jsonl", "csv")
def list_(
    limit: int,
    tags: tuple[str, ...],
    where: str,
    sort: str,
    fields: str | None,
    output_format: Format,
    *,
    everything: bool,
) -> None:
    """List the runs that are kept, the newest first.

    \b
      ct runs list --tag baseline
      ct runs list --where 'policy:attack -tag:legacy-run created>=2026-11-01' --sort -cost
    """
    from control_tower.client.runs import RunQuery, list_runs
    from control_tower.client.session import open_viewer, run
    from control_tower.errors import UsageError, ValidationError

    async def rows() -> list[dict[str, Any]]:
        async with open_viewer() as viewer:
            return await list_runs(viewer, RunQuery(where, tags, sort), None if everything else limit)

    try:
        found = run(rows())
    except ValidationError as error:
        # All that a list can be refused for is what the command line asks.
        raise UsageError(str(error)) from error
    asked = [field.strip() for field in (fields or "").split(",") if field.strip()]
    if chosen := asked or (_FOR_PROGRAMS if output_format == "csv" else []):
        paths = {field: _FIELDS.get(field, field) for field in chosen}
        rows_shown = [{field: _at(row, path) for field, path in paths.items()} for row in found]
        print_rows(rows_shown, output_format, chosen)
        for field in asked if found else ():
            if all(row[field] is None for row in rows_shown):
                click.echo(f"{field}: none of these runs has it", err=True)
    elif output_format == "table":
        print_rows([_shown(row) for row in found], output_format, list(COLUMNS))
    else:
        print_rows(found, output_format)
    if output_format == "table" and not found:
        keep = "to keep one: `ct run eval ...`, or `ct runs make LOG`"
        click.echo("no run is like that" if where or tags else keep, err=True)


@click.command()
@click.argument("run", metavar="RUN")
@format_option("table", "json")
def info(run: str, output_format: Format) -> None:
    """Show a run, named by its id or URL: what it was, what came of it, what it cost."""
    from control_tower.cli.runs_edit import on_run
    from control_tower.client.runs import get_run

    found = on_run(run, get_run)
    if output_format == "json":
        print_record(found, output_format)
        return
    print_record(_overview(found), output_format)
    metrics: dict[str, Any] = found.get("metrics") or {}
    rows = [
        {"scorer": name, "metric": m, "value": v} for name, each in metrics.items() for m, v in each.items()
    ]
    print_section("Metrics", [row for row in rows if row["value"] is not None])
    costs: dict[str, Any] = found.get("cost_by_model") or {}
    print_section("Cost by model", [{"model": name, "usd": _usd(usd)} for name, usd in costs.items()])


def _overview(found: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = found.get("counts") or {}
    metadata: dict[str, Any] = found.get("metadata") or {}
    return {
        "Run ID": found["run_id"],
        "Name": found["name"],
        "Policy": found.get("policy"),
        "Task Set": found.get("task_set"),
        "Tags": found.get("tags"),
        "Description": found.get("description"),
        "Trajectory Count": found.get("trajectory_count"),
        **{name.capitalize(): number for name, number in counts.items() if number is not None},
        "Cost": _cost(found),
        "Created At": found.get("created_at"),
        "Created By": found.get("created_by"),
        "Eval Log URL": found.get("eval_log_url"),
        "Converted From": metadata.get("converted_from"),
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    own = {**row, "cost": _cost(row), "age": _age(row.get("created_at"))}
    return {name: _rounded(_at(own, field)) for name, field in COLUMNS.items()}


def _at(row: dict[str, Any], path: str) -> Any:
    """A field, or one within it: parts are separated by dots."""
    value: Any = row
    for part in path.split("."):
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value


def _rounded(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value


def _cost(row: dict[str, Any]) -> str | None:
    usd = row.get("total_cost_usd")
    by_model: dict[str, Any] = row.get("cost_by_model") or {}
    incomplete = row.get("cost_incomplete") or None in by_model.values()
    return None if usd is None else _usd(usd) + ("+" if incomplete else "")


def _usd(usd: float | None) -> str:
    return "unpriced" if usd is None else f"${usd:,.4f}"


def _age(created: str | None) -> str | None:
    from datetime import UTC, datetime

    if created is None:
        return None
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds(), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
