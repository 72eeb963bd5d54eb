"""`--fleet local`: a run played by worker processes of this machine, and what came of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from control_tower.cli.fleet_progress import FleetLine
from control_tower.cli.run_eval import Played
from control_tower.errors import Interrupted, OperationError, UsageError
from control_tower.evals.local import LocalRun, from_here
from control_tower.evals.plan import RunPlan
from control_tower.evals.recordings_compare import compare
from control_tower.evals.results import read_results
from control_tower.evals.run_config import RunConfig
from control_tower.evals.upload import Wish
from control_tower.fleet.cost import FleetCost, fleet_cost
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.drive import Driven, Opened, drive, finished, open_local
from control_tower.fleet.header import WholeHeader
from control_tower.fleet.merge import MergedFleet, merge_fleet
from control_tower.fleet.place import local_place
from control_tower.fleet.plan import differences, plan_fleet, publish
from control_tower.fleet.settings import FleetSettings, check_budget, parse_settings
from control_tower.models.cost import unpriced

_PAUSE_ENDS = 600.0
"""Seconds after which a pause becomes the end where nobody is there to end it."""

_OF_WORKERS = ("slots", "idle_timeout", "ttl", "attempt_timeout")
"""Settings that workers read where a fleet was planned; the others are the controller's, and may change."""


@dataclass(frozen=True)
class FleetEnd:
    """What a fleet came to."""

    opened: Opened
    merged: MergedFleet
    cost: FleetCost

    def as_json(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        failed = len(self.merged.failed)
        return {
            **about(self.opened),
            "completed": len(self.opened.plan.jobs) - failed,
            "failed": failed,
            "cost": {
                "accepted": self.cost.accepted.as_json(),
                "repeated": self.cost.repeated.as_json(),
                "wasted": self.cost.wasted.as_json(),
            },
        }

    def uploads(self, wish: Wish) -> bool:
        """Whether its log becomes a run though jobs failed."""
        config = RunConfig.model_validate(self.opened.plan.file.config)
        return wish == "always" or config.eval_args.get("fail_on_error") is False

    def check(self) -> None:
        """Refuses to call a fleet done of which jobs failed.

        Raises:
            OperationError: Some did, with what to do.
        """
        if not self.merged.failed:
            return
        fleet, job = self.opened.id, self.merged.failed[0]
        log = from_here(self.opened.place.root / self.opened.outside.keys.verdict(job))
        raise OperationError(
            f"{len(self.merged.failed)} of {len(self.opened.plan.jobs)} jobs failed; why the first did: "
            f"ct fleet why {fleet} {job}; its log: {log}; the log of all: {from_here(self.merged.path)}; "
            f"to play them again: ct fleet resume {fleet} --retry-failed"
        )


def fleet_settings(options: Mapping[str, Any], config: RunConfig) -> FleetSettings | None:
    """What `--fleet` and `--fleet-arg` ask for; None for a run without a fleet.

    Args:
        options: Those of the command.
        config: The run that they describe.

    Raises:
        UsageError: An unknown key, or something that a fleet cannot do.
    """
    if options["fleet"] is None:
        if options["fleet_args"]:
            raise UsageError("--fleet-arg says how a fleet is: give --fleet local, too")
        return None
    if options["smoke"]:
        raise UsageError("--smoke tries a run out on this machine: leave --fleet out")
    if options["resume"] is not None:
        raise UsageError("a fleet goes on by the same command without --resume, or by `ct fleet resume ID`")
    args = config.eval_args
    if "max_samples" in args:
        raise UsageError("a fleet plays workers x slots samples at once: give --fleet-arg slots=... instead")
    if not isinstance(args.get("fail_on_error", True), bool):
        raise UsageError("jobs of a fleet fail one by one: fail_on_error is true or false")
    if args.get("continue_on_fail") is False:
        raise UsageError("the other jobs of a fleet go on: leave continue_on_fail=false out")
    return parse_settings(options["fleet_args"])


def play_fleet(plan: RunPlan, settings: FleetSettings, log_dir: Path) -> Played | None:
    """Plays a run by a fleet, or goes on with it where it stopped.

    Args:
        plan: The run, its models bound.
        settings: What the user wants of the fleet.
        log_dir: Where its events and its merged log go.

    Returns:
        What came of it; None when the fleet was left running.

    Raises:
        StateError: Something is missing; nothing was started.
        Interrupted: The user stopped it; what was done is kept.
        OperationError: It paused and nobody went on with it.
    """
    check_budget(settings, _unpriced(plan.config))
    fleet = plan_fleet(plan, settings, log_dir)
    asyncio.run(publish(fleet, None, DirectoryStore(local_place(fleet.fleet).root)))
    opened = asyncio.run(open_local(fleet.fleet))
    there = opened.plan.file
    kept = settings.model_copy(update={name: getattr(there.settings, name) for name in _OF_WORKERS})
    asked = there.settings.model_copy(update={name: getattr(settings, name) for name in _OF_WORKERS})
    for difference in differences(there, fleet.file.model_copy(update={"settings": asked})):
        click.echo(f"note: as fleet {opened.id} was planned, {difference}", err=True)
    played = bring_to_end(opened, log_dir, kept, plan)
    if played is None or not (plan.replaying or plan.nothing_runs):
        return played
    return replace(played, comparison=compare(plan, played.run.results.log))


def bring_to_end(
    opened: Opened, log_dir: Path, settings: FleetSettings, plan: RunPlan | None = None
) -> Played | None:
    """Drives a fleet to its end and merges it; of one that is finished only the latter.

    Args:
        opened: The fleet.
        log_dir: Where the merged log goes.
        settings: What the user wants of it now.
        plan: Its run, where that is known.

    Returns:
        What came of it; None when the fleet was left running.
    """
    header = WholeHeader(opened.place, opened.plan.file, plan)
    if asyncio.run(finished(opened)):
        click.echo(f"Fleet {opened.id} is finished: nothing runs, its results once more", err=True)
    elif not _drive(opened, settings, header):
        return None
    header.body()
    merged, cost = asyncio.run(_merge(opened, log_dir))
    for alarm in merged.alarms:
        click.echo(f"warning: {alarm}", err=True)
    jobs = opened.plan.jobs
    results = read_results(merged.path, {job.sample for job in jobs if job.attack}, len(jobs))
    config = RunConfig.model_validate(opened.plan.file.config)
    return Played(LocalRun(results, _unpriced(config)), None, FleetEnd(opened, merged, cost))


def about(opened: Opened) -> dict[str, Any]:
    """What names a fleet in JSON."""
    return {"id": opened.id, "events": str(opened.events)}


def _drive(opened: Opened, settings: FleetSettings, header: WholeHeader) -> bool:
    """Drives a fleet; False when it was left running."""
    alone = settings.auto_confirm or not sys.stderr.isatty()
    policy = replace(settings.policy(), pause_ends_after=_PAUSE_ENDS if alone else None)
    _announce(opened, settings)
    line = FleetLine(opened.id, policy.pause_ends_after)
    try:
        driven = asyncio.run(drive(opened, line, header, policy, detach=settings.detach))
    finally:
        line.close()
    if driven.left:
        minutes = settings.ttl / 60
        click.echo(
            f"left: {', '.join(driven.left)}, which end by themselves within {minutes:.0f} minutes; "
            f"at once: ct fleet down {opened.id}",
            err=True,
        )
    if driven.detached:
        click.echo(f"Fleet {opened.id} goes on; to come back: ct fleet attach {opened.id}", err=True)
        return False
    _check_ended(opened, driven)
    return True


def _check_ended(opened: Opened, driven: Driven) -> None:
    """Refuses to go on with a fleet that is not at its end.

    Raises:
        Interrupted: The user stopped it.
        OperationError: It paused, and nobody went on with it.
    """
    if driven.code != 130:
        return
    end, fleet = driven.end, opened.id
    so_far = f"{end.done} of {end.total} jobs are done and kept"
    go_on = f"to go on: the same command, or ct fleet resume {fleet}"
    if end.why and end.why != "interrupted":
        raise OperationError(f"the fleet ended early, because {end.why}; {so_far}; {go_on}")
    raise Interrupted(f"interrupted; {so_far}; {go_on}; what is there: ct fleet merge {fleet} --partial")


async def _merge(opened: Opened, log_dir: Path) -> tuple[MergedFleet, FleetCost]:
    store = opened.outside.store
    return await merge_fleet(store, opened.id, log_dir), await fleet_cost(store, opened.id)


def _announce(opened: Opened, settings: FleetSettings) -> None:
    lines = [
        f"Fleet {opened.id}:",
        f"  jobs      {len(opened.plan.jobs)}",
        f"  workers   {settings.workers} x {settings.slots} slots",
        f"  events    {from_here(opened.events)}",
        "  Ctrl-C    lets what runs finish; the same command goes on, "
        f"also ct fleet resume {opened.id}; to look: ct fleet status {opened.id}",
    ]
    click.echo("\n".join(lines), err=True)


def _unpriced(config: RunConfig) -> list[str]:
    return unpriced(spec.full_name for spec in config.model_roles.values())
