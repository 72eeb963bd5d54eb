"""`ct fleet merge` and `down`: what a fleet leaves behind, and what it shall not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from control_tower.cli.output import Format, format_option, print_record
from control_tower.errors import ExpectedError, OperationError, StateError, UsageError

if TYPE_CHECKING:
    from control_tower.fleet.drive import Opened
    from control_tower.fleet.merge import MergedFleet


@click.command()
@click.argument("fleet", metavar="ID")
@click.option("--partial", is_flag=True, help="What is there of a fleet that is not at its end.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Where the log goes; to the fleet's log folder by default.",
)
@format_option("table", "json")
def merge(fleet: str, output: Path | None, output_format: Format, *, partial: bool) -> None:
    """Write one log of a fleet's accepted results; the same results give the same log.

    Ends with 1 when jobs failed or are missing, unless --partial says that this is known.
    """
    from control_tower.cli.fleet_open import opened

    found = opened(fleet)
    merged, path = _merge(found, output or Path(found.plan.file.log_dir), partial)
    if output_format == "json":
        names = {"failed": merged.failed, "missing": merged.missing, "alarms": merged.alarms}
        print_record({"id": found.id, "log": str(path), **names}, "json")
    else:
        click.echo(f"Log: {path}")
    for alarm in merged.alarms:
        click.echo(f"warning: {alarm}", err=True)
    for title, names in (("failed", merged.failed), ("without a result", merged.missing)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            click.echo(f"{title}: {', '.join(names[:5])}{more}", err=True)
    if (merged.failed or merged.missing) and not partial:
        raise OperationError(
            f"not all jobs completed; to try them anew: ct fleet resume {found.id} --retry-failed"
        )


def _merge(fleet: Opened, output: Path, partial: bool) -> tuple[MergedFleet, Path]:
    from control_tower.fleet.merge import merge_fleet

    store = fleet.outside.store
    if output.suffix != ".eval":
        merged = asyncio.run(merge_fleet(store, fleet.id, output, partial))
        return merged, merged.path
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".ct-merge-", dir=output.parent) as folder:
            merged = asyncio.run(merge_fleet(store, fleet.id, Path(folder), partial))
            merged.path.replace(output)
    except OSError as error:
        raise OperationError(f"{output}: {error.strerror}") from error
    return merged, output


@click.command()
@click.argument("fleet", required=False, metavar="ID")
@click.option("--all-mine", is_flag=True, help="All fleets of this user that nobody leads.")
@click.option("--delete", is_flag=True, help="Remove the results, too.")
@click.option("--yes", is_flag=True, help="Do not ask before results are removed.")
@format_option("table", "json")
def down(fleet: str | None, output_format: Format, *, all_mine: bool, delete: bool, yes: bool) -> None:
    """End a fleet's workers, and remove its queues, secrets, scratch and the logs of its workers.

    Results stay, so that `ct fleet resume` goes on; --delete removes them as well. What was removed before is
    no error.
    """
    from control_tower.cli.fleet_open import controller_of, fleets, opened

    if (fleet is None) != all_mine:
        raise UsageError("give the ID of a fleet or --all-mine")
    ids = [file.fleet for file in fleets()] if fleet is None else [fleet]
    found = [opened(id) for id in ids]
    if delete and not yes and found:
        names = ", ".join(one.id for one in found)
        if not sys.stdin.isatty():
            raise UsageError(f"say --yes to remove all results of {names}: nobody can be asked here")
        click.confirm(f"Remove all results of {names}?", abort=True, err=True)
    removed: dict[str, list[str]] = {}
    problems: list[str] = []
    for one in found:
        try:
            if leader := controller_of(one):
                raise StateError(f"{leader} leads fleet {one.id}; first: ct fleet stop {one.id}")
            removed[one.id] = asyncio.run(_down(one, delete=delete))
        except ExpectedError as error:
            problems.append(str(error))
    if output_format == "json":
        print_record(removed, "json")
    else:
        for id, things in removed.items():
            click.echo(f"Fleet {id}: {'removed ' + ', '.join(things) if things else 'nothing was left'}")
        if not found:
            click.echo("there are no fleets", err=True)
    if problems:
        raise OperationError("; ".join(problems))


async def _down(fleet: Opened, *, delete: bool) -> list[str]:
    from control_tower.fleet.tear_down import tear_down

    return await tear_down(fleet.place, fleet.provider, fleet.secrets, delete=delete)
