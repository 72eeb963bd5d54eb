"""`ct viewer backup`, `restore` and `migrate`: all that a viewer keeps, written down and read again."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from control_tower.agent_runs.backup import Manifest
    from control_tower.agent_runs.store.interface import Store
    from control_tower.storage.blobs import Blobs

C = TypeVar("C", bound=Callable[..., Any])


def _data_option(command: C) -> C:
    return click.option(
        "--data", metavar="DIR", help="Folder of the viewer.  [default: where `ct viewer serve` keeps runs]"
    )(command)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="OUT")
@click.option(
    "--blobs/--no-blobs",
    "with_blobs",
    default=None,
    help="Whether to copy the logs too.  [default: when they are kept in a folder, not when in S3]",
)
@_data_option
def backup(folder: Path, with_blobs: bool | None, data: str | None) -> None:
    """Write all that the viewer keeps into the new folder OUT; it may be serving meanwhile.

    The folder holds secrets, keep it as you keep the viewer's own.
    """
    import asyncio

    from control_tower.agent_runs.backup import back_up

    async def work() -> "Manifest":
        async with _opened(data) as (store, blobs):
            copy = blobs.bucket == "local" if with_blobs is None else with_blobs
            return await back_up(store, blobs, folder, with_blobs=copy)

    made = asyncio.run(work())
    logs = "" if made.with_blobs else " by name only"
    click.echo(f"backed up {_what(made)}{logs} to {folder}", err=True)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="IN")
@_data_option
def restore(folder: Path, data: str | None) -> None:
    """Fill a new, empty viewer from the backup IN, which may come from a viewer of another kind.

    The whole backup is checked before anything is written. Start `ct viewer serve` afterwards.
    """
    import asyncio

    from control_tower.agent_runs.backup import restore

    async def work() -> "Manifest":
        async with _opened(data) as (store, blobs):
            return await restore(store, blobs, folder)

    click.echo(f"restored {_what(asyncio.run(work()))}", err=True)


@click.command()
@_data_option
def migrate(data: str | None) -> None:
    """Take the viewer's store to the schema of this version, as every start does; stop the viewer first.

    A migration that is interrupted goes on the next time.
    """
    import asyncio

    from control_tower.agent_runs.store.tables import SCHEMA

    async def work() -> int | None:
        async with _opened(data) as (store, _):
            return store.found_version

    found, now = asyncio.run(work()), SCHEMA.version
    if found is None:
        click.echo(f"made a new store of schema {now}", err=True)
    else:
        was = "is of" if found == now else f"was of schema {found}, is now of"
        click.echo(f"the store {was} schema {now}", err=True)


def _what(made: "Manifest") -> str:
    rows = {name: listing.lines for name, listing in made.tables.items()}
    logs = f"{made.blobs.lines} logs ({made.bytes / 1e6:,.1f} MB)"
    return f"{rows['runs']} runs, {rows['trajectories']} trajectories, {rows['users']} users and {logs}"


@asynccontextmanager
async def _opened(data: str | None) -> "AsyncGenerator[tuple[Store, Blobs]]":
    from control_tower.agent_runs.site import SiteSettings, store_of
    from control_tower.storage.opening import open_blobs

    settings = SiteSettings.from_environment("private", data)
    store = store_of(settings)
    await store.open()
    try:
        blobs = await open_blobs(settings.blobs)
        try:
            yield store, blobs
        finally:
            await blobs.close()
    finally:
        await store.close()
