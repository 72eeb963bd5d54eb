"""`ct fleet list`, `status`, `why` and `cost`: they only read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.output import Format, format_option, print_record, print_rows, print_section

if TYPE_CHECKING:
    from control_tower.fleet.cost import FleetCost, Split
    from control_tower.fleet.plan import FleetFile
    from control_tower.fleet.status import Brief, Seen

_NEWEST = 20
_AGAIN = 2.0
"""Seconds between two looks."""


@click.command("list")
@click.option("--all", "everything", is_flag=True, help=f"All of them, not only the newest {_NEWEST}.")
@format_option("table", "json", "jsonl")
def list_(output_format: Format, *, everything: bool) -> None:
    """List the fleets of this user, the newest first.

    STATE is `running` under the process that leads it, `detached` when only workers live, `interrupted` when
    nothing lives and jobs are open, else `sealed`.
    """
    import asyncio

    from control_tower.cli.fleet_open import fleets
    from control_tower.fleet.drive import living_controller, open_fleet
    from control_tower.fleet.plan import FleetPlan
    from control_tower.fleet.status import glance

    async def brief(file: FleetFile) -> Brief:
        fleet = open_fleet(FleetPlan(file, ()))
        return await glance(file, fleet.outside.store, fleet.provider, await living_controller(fleet))

    async def briefs() -> list[Brief]:
        return [await brief(file) for file in found]

    known = fleets()
    found = known if everything else known[:_NEWEST]
    rows = [_row(one) for one in asyncio.run(briefs())]
    if output_format == "table":
        for row in rows:
            row["state"] += f" ({who})" if (who := row.pop("controller")) else ""
    print_rows(rows, output_format)
    if len(found) < len(known):
        click.echo(f"{len(known) - len(found)} older ones: ct fleet list --all", err=True)


def _row(one: Brief) -> dict[str, Any]:
    return {
        "id": one.file.fleet,
        "created": one.file.created,
        **_who_plays(one.file),
        "completed": one.completed,
        "failed": one.failed,
        "total": one.file.jobs,
        "state": one.life,
        "controller": one.controller,
        "workers": one.workers,
    }


def _who_plays(file: FleetFile) -> dict[str, str]:
    parts = [file.config.get(name) for name in ("policy", "honest_policy", "attack_policy")]
    names = dict.fromkeys(part["name"] for part in parts if part)
    return {"policy": ", ".join(names), "protocol": file.config.get("protocol", {}).get("name", "")}


@click.command()
@click.argument("fleet", metavar="ID")
@click.option("--watch", is_flag=True, help="Look again and again until nothing of it lives.")
@format_option("table", "json")
def status(fleet: str, output_format: Format, *, watch: bool) -> None:
    """Say how a fleet is doing, and what its controller would do next and why.

    Reads the store, the list of workers and the events, so it needs no controller and changes nothing. What
    comes next is what the real decision core answers.
    """
    from control_tower.cli.fleet_open import opened, seen

    found = opened(fleet)
    while True:
        now = seen(found)
        if watch and sys.stdout.isatty():
            click.clear()
        if output_format == "json":
            print_record(_as_json(now), "json" if not watch else "jsonl")
        else:
            _show(now, str(found.events))
        if not watch or (not now.workers and now.life in ("sealed", "interrupted")):
            return
        time.sleep(_AGAIN)


def _as_json(now: Seen) -> dict[str, Any]:
    from control_tower.fleet.next_steps import next_steps

    progress, control = now.progress, now.standing.control
    return {
        "id": now.plan.fleet,
        "created": now.plan.file.created,
        **_who_plays(now.plan.file),
        "state": now.life,
        "controller": now.controller,
        "mode": control.mode if control else None,
        "why": control.why if control else None,
        "jobs": {
            "total": progress.total,
            "completed": progress.completed,
            "failed": progress.failed,
            "running": progress.running,
            "retrying": progress.retrying,
            "waiting": _waiting(now),
        },
        "usd": progress.usd,
        "unpriced": progress.unpriced,
        "budget_usd": progress.budget,
        "workers": [{"id": one.id, "market": one.market} for one in now.workers],
        "running": _running(now),
        "next": [{"text": step.text, "jobs": step.jobs, "in_s": step.in_s} for step in next_steps(now)],
    }


def _show(now: Seen, events: str) -> None:
    from control_tower.fleet.next_steps import next_steps

    progress, control = now.progress, now.standing.control
    mode = f"{control.mode}: {control.why}" if control and control.why else control.mode if control else None
    by = f" ({now.controller})" if now.controller else ""
    record = {
        "Fleet": now.plan.fleet,
        "Created": now.plan.file.created,
        **{name.capitalize(): value for name, value in _who_plays(now.plan.file).items()},
        "State": now.life + by,
        "Workers were told": mode,
        "Jobs": f"{progress.completed} completed, {progress.failed} failed, {progress.running} running, "
        f"{progress.retrying} retrying, {_waiting(now)} waiting, of {progress.total}",
        "Spent": _spent(now),
        "Workers": [one.id for one in now.workers] or "none lives",
        "Events": events,
    }
    print_record({name: value for name, value in record.items() if value}, "table")
    print_section("Running", _running(now))
    click.echo(f"\nNext{', if a controller began now' if now.controller is None else _LED}")
    for step in next_steps(now):
        click.echo(f"- {step.text}")


_LED = ", for a controller that began now; the one there is has heard more"


def _waiting(now: Seen) -> int:
    progress = now.progress
    return progress.total - progress.done - progress.running - progress.retrying


def _spent(now: Seen) -> str:
    progress = now.progress
    usd = "unpriced" if progress.usd is None else f"${progress.usd:.4f}"
    budget = f" of ${progress.budget:g}" if progress.budget is not None else ""
    partly = progress.usd is not None and progress.unpriced
    return usd + budget + (f", and {progress.unpriced} attempts without a price" if partly else "")


def _running(now: Seen) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for id, worker in now.holders.items():
        job, attempt = now.planned[id], now.state.jobs.by_id[id].attempt
        rows.append(
            {"job": id, "sample": job.sample, "epoch": job.epoch, "attempt": attempt, "worker": worker}
        )
    return rows


@click.command()
@click.argument("fleet", metavar="ID")
@click.argument("job")
@format_option("table", "json")
def why(fleet: str, job: str, output_format: Format) -> None:
    """Say what became of each attempt of a job, and what follows.

    JOB is its id, the begin of it, or the id of its sample.
    """
    import asyncio

    from control_tower.cli.fleet_open import opened, seen
    from control_tower.fleet.history import attempts_of, job_named
    from control_tower.fleet.next_steps import next_of
    from control_tower.fleet.replay import read_events

    found = opened(fleet)
    one = job_named(job, found.plan.jobs)
    now, events = seen(found), read_events(found.events).lines
    root = found.place.root
    attempts = asyncio.run(attempts_of(now, found.outside, one.id, events))
    rows = [
        {
            "attempt": each.number,
            "worker": each.worker,
            "ended": each.ended,
            "took_s": None if each.duration_s is None else round(each.duration_s, 1),
            "outcome": each.outcome,
            "category": each.category,
            "summary": each.summary,
            "usd": each.usd,
            "log": str(root / each.log) if each.log else None,
            "output": str(root / each.output) if each.output else None,
            "verdict": each.verdict,
        }
        for each in attempts
    ]
    record = {"job": one.id, "sample": one.sample, "epoch": one.epoch, "task": one.task}
    follows = next_of(now, one.id)
    if output_format == "json":
        print_record({**record, "attempts": rows, "next": follows}, "json")
        return
    print_record({name.capitalize(): value for name, value in record.items()}, "table")
    for row in rows:
        click.echo(f"\nAttempt {row.pop('attempt')}{' (the verdict)' if row.pop('verdict') else ''}")
        print_record({name: value for name, value in row.items() if value is not None}, "table")
    click.echo(f"\nNext: {follows}")


@click.command()
@click.argument("fleet", metavar="ID")
@format_option("table", "json")
def cost(fleet: str, output_format: Format) -> None:
    """Say what a fleet spent so far: on results, on repeating them, and on what gave none.

    `+` marks a sum from which a price is missing.
    """
    import asyncio

    from control_tower.cli.fleet_open import opened
    from control_tower.fleet.cost import fleet_cost

    found = opened(fleet)
    spent = asyncio.run(fleet_cost(found.outside.store, found.id))
    if output_format == "json":
        print_record(_cost_json(spent), "json")
        return
    print_record(
        {
            "Accepted": f"{spent.accepted}  results of first attempts",
            "Repeated": f"{spent.repeated}  results of later attempts",
            "Wasted": f"{spent.wasted}  attempts that gave no result",
            "Tokens": spent.tokens.total,
            "Machines": spent.machines,
            "Attempts": spent.attempts,
            "Without a price": f"{spent.unpriced} attempts" if spent.unpriced else "none",
            "Left nothing": f"{spent.unaccounted} attempts, running or lost; what they spent is not known"
            if spent.unaccounted
            else "none",
        },
        "table",
    )
    print_section("By policy", [_split(name, split) for name, split in spent.by_policy.items()])
    print_section("By side task", [_split(name, split) for name, split in spent.by_side_task.items()])


def _split(name: str, split: Split) -> dict[str, Any]:
    sums = {"accepted": split.accepted, "repeated": split.repeated, "wasted": split.wasted}
    return {"": name, **{key: str(value) for key, value in sums.items()}, "total": str(split.total)}


def _cost_json(spent: FleetCost) -> dict[str, Any]:
    def split(one: Split) -> dict[str, Any]:
        parts = {"accepted": one.accepted, "repeated": one.repeated, "wasted": one.wasted, "total": one.total}
        return {name: value.as_json() for name, value in parts.items()}

    return {
        **split(spent.tokens),
        "machines": spent.machines.as_json(),
        "attempts": spent.attempts,
        "unpriced": spent.unpriced,
        "unaccounted": spent.unaccounted,
        "by_policy": {name: split(one) for name, one in spent.by_policy.items()},
        "by_side_task": {name: split(one) for name, one in spent.by_side_task.items()},
        "by_job": {name: split(one) for name, one in spent.by_job.items()},
    }
