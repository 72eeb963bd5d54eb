"""`ct fleet attach`, `drain`, `stop`, `resume` and `set`: by whoever leads the fleet, else by itself."""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from control_tower.cli.output import Format, format_option
from control_tower.errors import OperationError, StateError, UsageError, did_you_mean

if TYPE_CHECKING:
    from control_tower.fleet.documents import Asked
    from control_tower.fleet.drive import Opened

_ANSWER = 30.0
"""Seconds in which whoever leads a fleet takes up what it is asked."""

_upload = click.option(
    "--upload/--no-upload", default=None, help="Make a run of the log; as the fleet was started by default."
)


@click.command()
@click.argument("fleet", metavar="ID")
@_upload
@format_option("table", "json")
def attach(fleet: str, output_format: Format, *, upload: bool | None) -> int:
    """Watch a fleet that somebody leads, or lead it when nobody does.

    Watching changes nothing: Ctrl-C ends this command only. Where nobody leads the fleet, or its leader is
    killed meanwhile, this command says so and leads it from there to its end.
    """
    from control_tower.cli.fleet_open import controller_of, opened
    from control_tower.cli.fleet_watch import say_end, was_killed, watch

    found = opened(fleet)
    if leader := controller_of(found):
        click.echo(f"{leader} leads fleet {found.id}; this command watches", err=True)
        watch(found, leader)
        if not was_killed(found):
            return say_end(found)
    if not asyncio.run(_sealed(found)):
        click.echo(f"Nobody leads fleet {found.id}: this command does now", err=True)
    return _lead(found, output_format, upload)


@click.command()
@click.argument("fleet", metavar="ID")
def drain(fleet: str) -> None:
    """Let what runs finish, begin nothing new, then end the workers. `ct fleet resume` goes on."""
    _end(fleet, "drain")


@click.command()
@click.argument("fleet", metavar="ID")
def stop(fleet: str) -> None:
    """End what runs within 20 seconds, and the workers. `ct fleet resume` goes on."""
    _end(fleet, "stop")


@click.command()
@click.argument("fleet", metavar="ID")
@click.option("--retry-failed", is_flag=True, help="Try the jobs that failed anew.")
@click.option(
    "--retry",
    "categories",
    multiple=True,
    metavar="CATEGORY",
    help="Try those anew that failed like this, such as sandbox. Repeatable.",
)
@click.option("--retry-unscored", is_flag=True, help="Try those anew that completed without a score.")
@_upload
@format_option("table", "json")
def resume(
    fleet: str,
    categories: tuple[str, ...],
    output_format: Format,
    *,
    retry_failed: bool,
    retry_unscored: bool,
    upload: bool | None,
) -> int:
    """Go on with a fleet where it stopped or paused: only what is missing is played.

    Needs nothing but the id; merges, prints and uploads as the command that started it. A living leader is
    only asked to go on.
    """
    from control_tower.cli.fleet_open import controller_of, opened
    from control_tower.fleet.documents import Asked

    retry = _retries(categories) + ("failed",) * retry_failed + ("unscored",) * retry_unscored
    found = opened(fleet)
    leader = controller_of(found)
    if leader or retry or not asyncio.run(_sealed(found)):
        number = asyncio.run(_ask(found, Asked(kind="resume", retry=retry)))
        if leader:
            _wait_for(found, number, leader)
            click.echo(
                f"{leader} goes on with fleet {found.id}; to watch: ct fleet attach {found.id}", err=True
            )
            return 0
    return _lead(found, output_format, upload)


@click.command("set")
@click.argument("fleet", metavar="ID")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_(fleet: str, values: tuple[str, ...]) -> None:
    """Change a fleet's `budget_usd`, `budget_hard_usd` or `workers`, now and for whoever leads it later.

    A fleet that paused because its budget is spent goes on when the new one is higher.
    """
    from control_tower.cli.fleet_open import controller_of, opened
    from control_tower.evals.run_config import RunConfig
    from control_tower.fleet.documents import Asked
    from control_tower.fleet.settings import FleetSettings, check_budget, parse_settings
    from control_tower.models.cost import unpriced

    keys = [value.partition("=")[0] for value in values]
    for key in keys:
        if key not in _SETTABLE:
            raise UsageError(f"a fleet's {key!r} cannot be changed{did_you_mean(key, _SETTABLE)}")
    given = parse_settings(values, "ct fleet set")
    changed = {key: getattr(given, key) for key in keys}
    for key, value in changed.items():
        if value is None:
            raise UsageError(f"a fleet's {key} cannot be taken away; set it as high as you like")
    found = opened(fleet)
    settings: FleetSettings = found.plan.file.settings.model_copy(update=changed)
    roles = RunConfig.model_validate(found.plan.file.config).model_roles
    check_budget(settings, unpriced(spec.full_name for spec in roles.values()))
    if asyncio.run(_sealed(found)):
        raise StateError(f"fleet {found.id} is sealed: nothing runs that this could change")
    leader = controller_of(found)
    asked = Asked(kind="set", **changed)
    number = asyncio.run(_ask(found, asked))
    told = ", ".join(f"{key}={value:g}" for key, value in changed.items())
    if leader:
        _wait_for(found, number, leader)
        click.echo(f"Fleet {found.id}: {told}, taken up by {leader}")
    else:
        click.echo(f"Fleet {found.id}: {told}, from when it goes on")


_SETTABLE = ("budget_usd", "budget_hard_usd", "workers")


def _retries(categories: tuple[str, ...]) -> tuple[str, ...]:
    from typing import get_args

    from control_tower.fleet.outcomes import Category

    known = [*get_args(Category), "infra", "worker_killer"]
    for one in categories:
        if one not in known:
            raise UsageError(f"--retry {one}: no job fails like this{did_you_mean(one, known)}")
    return categories


def _end(fleet: str, kind: Literal["drain", "stop"]) -> None:
    from control_tower.cli.fleet_open import controller_of, opened, seen
    from control_tower.cli.fleet_watch import so_far, was_killed, watch
    from control_tower.fleet.documents import Asked

    found = opened(fleet)
    leader = controller_of(found)
    if leader is None and not seen(found).workers:
        click.echo(f"Fleet {found.id}: nothing runs. {so_far(seen(found))}")
        return
    if leader:
        asyncio.run(_ask(found, Asked(kind=kind)))
        click.echo(f"asked {leader}, which leads fleet {found.id}", err=True)
        watch(found, leader)
        if was_killed(found):
            click.echo(f"{leader} was killed meanwhile", err=True)
            leader = None
    if leader is None:
        click.echo(f"Nobody leads fleet {found.id}: this command does, to end its workers", err=True)
        _drive_to_end(found, 1 if kind == "drain" else 2)
    now = seen(found)
    left = f"; {', '.join(one.id for one in now.workers)} still live" if now.workers else ""
    click.echo(f"Fleet {found.id}: {'drained' if kind == 'drain' else 'stopped'}. {so_far(now)}{left}")
    if left:
        raise OperationError(f"workers of fleet {found.id} live on; to end them: ct fleet down {found.id}")


def _drive_to_end(fleet: Opened, ending: Literal[1, 2]) -> None:
    from control_tower.cli.fleet_progress import FleetLine
    from control_tower.fleet.drive import drive
    from control_tower.fleet.header import WholeHeader

    line = FleetLine(fleet.id)
    header = WholeHeader(fleet.place, fleet.plan.file)
    try:
        asyncio.run(drive(fleet, line, header, ending=ending))
    finally:
        line.close()


def _lead(fleet: Opened, output_format: Format, upload: bool | None) -> int:
    """Drives a fleet to its end and shows what came of it, as the command that started it."""
    from control_tower import config
    from control_tower.cli.run_eval import show
    from control_tower.cli.run_fleet import bring_to_end
    from control_tower.evals.upload import wish_of

    config.load_dotenv()
    file = fleet.plan.file
    if upload is None:
        words = shlex.split(file.command or "")
        upload = False if "--no-upload" in words else True if "--upload" in words else None
    settings = file.settings.model_copy(update={"detach": False})
    played = bring_to_end(fleet, Path(file.log_dir), settings)
    return 0 if played is None else show(played, output_format, wish_of(upload))


async def _ask(fleet: Opened, asked: Asked) -> int:
    from control_tower.fleet.standing import ask

    return await ask(fleet.outside.store, fleet.outside.keys, asked)


async def _sealed(fleet: Opened) -> bool:
    from control_tower.fleet.standing import read_standing

    return (await read_standing(fleet.outside.store, fleet.outside.keys, lambda _: None)).sealed


def _wait_for(fleet: Opened, number: int, leader: str) -> None:
    """Returns when what was asked is taken up.

    Raises:
        OperationError: It was not.
    """
    from control_tower.fleet.standing import read_standing

    end = time.monotonic() + _ANSWER
    while time.monotonic() < end:
        standing = asyncio.run(read_standing(fleet.outside.store, fleet.outside.keys, lambda _: None))
        if standing.applied >= number:
            return
        time.sleep(0.2)
    raise OperationError(f"{leader} leads fleet {fleet.id} and does not answer; what was asked stands")
