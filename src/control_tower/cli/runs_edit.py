"""`ct runs tag`, `note`, `rm`, `restore`, `open`: runs that are kept, changed or looked at."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from control_tower.client.session import Viewer

T = TypeVar("T")

RUN = click.argument("run", metavar="RUN")
RUNS = click.argument("runs", metavar="RUN...", nargs=-1, required=True)


def on_run(name: str, action: "Callable[[Viewer, str], Awaitable[T]]") -> T:
    """Do something with a run that is named by its id or URL.

    Raises:
        UsageError: it names no run.
        ExpectedError: as the action.
    """
    from control_tower.client.session import open_viewer, run
    from control_tower.client.sources import named
    from control_tower.errors import UsageError

    what = named(name)
    if what.kind != "run":
        raise UsageError(f"{name}: is the address of a trajectory; name its run")

    async def act() -> T:
        async with open_viewer(what.viewer) as viewer:
            return await action(viewer, what.id)

    return run(act())


@click.command()
@RUN
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("-r", "--remove", multiple=True, metavar="TAG", help="Take a tag away. Repeatable.")
def tag(run: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Give a run tags, or take tags away; prints those it has then."""
    from control_tower.client.runs import retag_run

    header = on_run(run, lambda viewer, id: retag_run(viewer, id, tags, remove))
    _print_tags(header)


def _print_tags(header: dict[str, Any]) -> None:
    from control_tower.cli.output import printable

    for name in header.get("tags") or ():
        click.echo(printable(name))


@click.command()
@RUN
@click.argument("text")
def note(run: str, text: str) -> None:
    """Describe a run in a few words; "" takes its description away."""
    from control_tower.client.runs import edit_run

    on_run(run, lambda viewer, id: edit_run(viewer, id, {"description": text or None}))


@click.command()
@RUNS
def rm(runs: tuple[str, ...]) -> None:
    """Remove runs. `ct runs restore` brings them back for 30 days."""
    from control_tower.client.runs import delete_run

    for run in runs:
        on_run(run, delete_run)
        click.echo(f"removed {run}; to have it back: `ct runs restore {run}`", err=True)


@click.command()
@RUNS
def restore(runs: tuple[str, ...]) -> None:
    """Bring removed runs back."""
    from control_tower.client.runs import restore_run

    for run in runs:
        on_run(run, restore_run)
        click.echo(f"restored {run}", err=True)


@click.command("open")
@RUN
def open_(run: str) -> None:
    """Show a run's page in the browser; prints its address."""
    url, local = on_run(run, _address)
    click.echo(url)
    if local:
        click.echo("the local viewer does not run: `ct viewer serve` starts it", err=True)
    else:
        click.launch(url)


async def _address(viewer: "Viewer", run_id: str) -> tuple[str, bool]:
    """The address of a run's page, and whether no server shows it now."""
    from control_tower.client.runs import get_run
    from control_tower.client.session import served

    await get_run(viewer, run_id)
    return f"{viewer.url}/runs/{run_id}", viewer.in_process and not served()
