"""`ct fleet events`, `replay` and `logs`: what a fleet, its workers and its attempts wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.output import Format, format_option, print_record, print_rows
from control_tower.errors import StateError, did_you_mean

if TYPE_CHECKING:
    from control_tower.fleet.drive import Opened
    from control_tower.fleet.replay import Replayed


@click.command()
@click.argument("fleet", metavar="ID")
def events(fleet: str) -> None:
    """Print the events of a fleet, one JSON object a line.

    A log that was lost is made anew from the accepted results and what attempts left; machines, pauses and
    times were only in the log.
    """
    from control_tower.cli.fleet_open import controller_of, opened

    found = opened(fleet)
    if not found.events.is_file():
        if controller_of(found):
            raise StateError(
                f"{found.events}: is not there though somebody leads the fleet; ct fleet status says who"
            )
        _rebuild(found)
    data = found.events.read_bytes()
    whole = data.rfind(b"\n") + 1
    click.echo(data[:whole].decode(errors="replace"), nl=False)
    if whole < len(data):
        click.echo("the last line is not whole and not shown", err=True)


def _rebuild(fleet: Opened) -> None:
    import asyncio
    from dataclasses import replace

    from control_tower.fleet.events import DiskFile, EventLog
    from control_tower.fleet.log_kind import EvalLogs
    from control_tower.fleet.replay import rebuilt
    from control_tower.fleet.tasks import Tasks

    tasks = Tasks()
    outside = replace(fleet.outside, spawn=tasks.spawn)
    logs = EvalLogs(fleet.plan.jobs, b"")
    found = asyncio.run(tasks.run(rebuilt(fleet.plan, outside, logs)))
    file = DiskFile(fleet.events)
    log = EventLog(file, outside.clock.wall)
    log.write([(one.kind, one.fields) for one in found])
    log.sync()
    file.close()
    click.echo(f"{fleet.events}: was lost; made anew from the store", err=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@format_option("table", "json")
def replay(file: Path, output_format: Format) -> None:
    """Say what a file of events adds up to, and what is torn, missing or doubled in it.

    Ends with 1 when something is.
    """
    from control_tower.fleet.replay import read_events

    if not file.is_file():
        raise StateError(f"{file}: there is no such file")
    found = read_events(file)
    if output_format == "json":
        print_record({**_sums(found), "verdicts": _verdicts(found), "problems": found.problems}, "json")
    else:
        print_record(
            {name.replace("_", " ").capitalize(): value for name, value in _sums(found).items()}, "table"
        )
        failed = [row for row in _verdicts(found) if row["status"] != "completed"]
        if failed:
            click.echo("\nNot completed")
            print_rows(failed, "table")
    for problem in found.problems:
        click.echo(f"{file}: {problem}", err=True)
    if found.problems:
        raise SystemExit(1)


def _sums(found: Replayed) -> dict[str, Any]:
    from control_tower.fleet.replay import spent

    money, statuses = spent(found), found.statuses
    open_jobs = None if found.expected is None else found.expected - sum(statuses.values())
    return {
        "fleet": found.fleet,
        "events": len(found.lines),
        "jobs": found.expected,
        "completed": statuses["completed"],
        "failed": statuses["failed"],
        "open": open_jobs,
        "results": len(found.told.results),
        "other_attempts": len(found.told.attempts),
        "paused": found.paused,
        "ended": found.summary is not None,
        "usd": money.usd,
        "wasted_usd": money.wasted,
        "unpriced": money.unpriced,
        "types": dict(found.types),
    }


def _verdicts(found: Replayed) -> list[dict[str, Any]]:
    return [
        {"job": job, "status": status, "attempt": attempt}
        for job, (status, attempt) in found.told.jobs.items()
    ]


@click.command()
@click.argument("fleet", metavar="ID")
@click.argument("what", required=False, metavar="[WORKER|JOB]")
@format_option("table", "json")
def logs(fleet: str, what: str | None, output_format: Format) -> None:
    """Show what a worker wrote, or the end of what the attempts of a job wrote.

    Without WORKER or JOB it lists what there is. The logs of workers are gone after `ct fleet down`.
    """
    from control_tower.cli.fleet_open import opened
    from control_tower.fleet.history import job_named

    found = opened(fleet)
    there = _kept(found)
    if what is None:
        if not there:
            click.echo("no worker and no attempt left any", err=True)
        elif output_format == "json":
            print_rows(there, "json")
        else:
            print_rows(there, "table", ["of", "kind", "bytes", "path"])
        return
    rows = [row for row in there if row["kind"] == "worker" and row["of"] == what]
    if not rows:
        workers = [row["of"] for row in there if row["kind"] == "worker"]
        try:
            job = job_named(what, found.plan.jobs)
        except StateError as error:
            raise StateError(f"{error}{did_you_mean(what, workers) if workers else ''}") from None
        rows = [row for row in there if row["of"] == job.id]
        if not rows:
            raise StateError(f"no attempt of {job.id} left any output; ct fleet why {found.id} {job.id}")
    for row in rows:
        if output_format == "json":
            text = Path(row["path"]).read_text(errors="replace") if row["kind"] != "eval" else None
            print_record({**row, "text": text}, "jsonl")
        elif row["kind"] == "eval":
            click.echo(f"{row['path']}: a log, for inspect view", err=True)
        else:
            if len(rows) > 1:
                click.echo(f"{row['path']}:", err=True)
                sys.stderr.flush()
            click.echo(Path(row["path"]).read_text(errors="replace"), nl=False)


def _kept(fleet: Opened) -> list[dict[str, Any]]:
    """Files of workers and attempts."""
    keys, place = fleet.outside.keys, fleet.place
    files = [(path.parent.name, "worker", path) for path in sorted(place.workers.glob("*/worker.log"))]
    for path in sorted((place.root / keys.attempts).glob("[!.]*")):
        name = f"{fleet.id}/attempts/{path.name}"
        if path.suffix in (".log", ".eval") and (found := keys.attempt_of(name.removesuffix(path.suffix))):
            files.append((found[0], "output" if path.suffix == ".log" else "eval", path))
    return [
        {"of": of, "kind": kind, "bytes": path.stat().st_size, "path": str(path)} for of, kind, path in files
    ]
