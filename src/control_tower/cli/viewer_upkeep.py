"""`ct viewer gc`, `verify` and `check`: what the operator of a viewer runs now and then."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from control_tower.cli.output import Format, format_option, print_rows
from control_tower.cli.viewer_users import data_option

if TYPE_CHECKING:
    from control_tower.agent_runs.site import Site

T = TypeVar("T")


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed now.")
@data_option
@format_option()
def gc(data: str | None, output_format: Format, *, dry_run: bool) -> None:
    """Remove what nothing refers to: run it once a day, the viewer may be serving meanwhile.

    Runs go 30 days after they were deleted, uploads that nobody continued after 7 days, logs of which no run
    was made after two calls that are a day apart.
    """
    from control_tower.agent_runs.upkeep import Removed, collect

    async def work(site: "Site") -> list[Removed]:
        return [removed async for removed in collect(site, dry_run=dry_run)]

    removed = _with_site(data, work)
    print_rows([vars(each) for each in removed], output_format)
    size = sum(each.size or 0 for each in removed)
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{len(removed)} {verb}, {size:,} bytes", err=True)


@click.command()
@click.option("--deep", is_flag=True, help="Also read every byte of every log and every trajectory.")
@data_option
@format_option()
def verify(data: str | None, output_format: Format, *, deep: bool) -> None:
    """List where runs and their logs differ; exit 1 if they do anywhere.

    Whether each run's log is there, and has the samples that the run has trajectories of. With --deep also
    whether its bytes are those that were uploaded, and whether outcomes, verdicts and places agree.
    """
    from control_tower.agent_runs.verify import Difference
    from control_tower.agent_runs.verify import verify as compare

    async def work(site: "Site") -> list[Difference]:
        return [difference async for difference in compare(site, deep=deep)]

    found = _with_site(data, work)
    print_rows([vars(each) for each in found], output_format)
    if found:
        click.echo(f"{len(found)} differences in {len({each.run_id for each in found})} runs", err=True)
        sys.exit(1)


@click.command()
@data_option
@format_option()
def check(data: str | None, output_format: Format) -> None:
    """List what is wrong with store, logs, clock and settings; exit 1 if anything is."""
    from control_tower.agent_runs.check import check as find

    found = _with_site(data, find)
    print_rows([{"finding": line} for line in found], output_format)
    if found:
        sys.exit(1)


def _with_site(data: str | None, work: "Callable[[Site], Awaitable[T]]") -> T:
    import asyncio

    from control_tower.agent_runs.site import SiteSettings, open_site

    async def run() -> T:
        async with open_site(SiteSettings.from_environment("private", data)) as site:
            return await work(site)

    return asyncio.run(run())
