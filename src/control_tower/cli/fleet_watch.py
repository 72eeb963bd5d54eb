"""Watching a fleet that another process leads; nothing is changed."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import click

from control_tower.cli.fleet_open import controller_of, seen
from control_tower.cli.fleet_progress import FleetLine
from control_tower.fleet.documents import Lease
from control_tower.fleet.drive import Opened
from control_tower.fleet.status import Seen

_LOOK = 1.0
"""Seconds between two looks at least."""


def watch(fleet: Opened, leader: str) -> None:
    """Shows how a fleet is doing until this leader leads it no more."""
    line = FleetLine(fleet.id)
    read = fleet.events.stat().st_size if fleet.events.is_file() else 0
    try:
        while controller_of(fleet) == leader:
            began = time.monotonic()
            read = _show_events(fleet, line, read)
            now = seen(fleet)
            control = now.standing.control
            mode, why = (control.mode, control.why) if control else ("run", "")
            line.progress(replace(now.progress, mode=mode, why=why))
            time.sleep(max(_LOOK, 10 * (time.monotonic() - began)))
        _show_events(fleet, line, read)
    finally:
        line.close()


def _show_events(fleet: Opened, line: FleetLine, read: int) -> int:
    """Shows the events from this byte on; returns the byte after the last whole one."""
    if not fleet.events.is_file():
        return read
    with fleet.events.open("rb") as file:
        file.seek(read)
        data = file.read()
    whole = data.rfind(b"\n") + 1
    for text in data[:whole].splitlines():
        event: dict[str, Any] = json.loads(text)
        line.event(event["type"], event)
    return read + whole


def was_killed(fleet: Opened) -> bool:
    """Whether the last leader went without letting go of the fleet."""
    found = asyncio.run(fleet.outside.store.get(fleet.outside.keys.lease))
    return found is not None and Lease.read(found.body).owner != ""


def say_end(fleet: Opened) -> int:
    """Says how a fleet that was watched stands now; returns the exit code."""
    now = seen(fleet)
    click.echo(f"Fleet {fleet.id} is {now.life}. {so_far(now)}")
    return 1 if now.life == "sealed" and now.progress.failed else 0


def so_far(now: Seen) -> str:
    """How far a fleet came, and how it goes on."""
    progress, fleet = now.progress, now.plan.fleet
    if now.standing.sealed:
        return (
            f"All {progress.total} jobs are decided: {progress.completed} completed, {progress.failed} failed"
        )
    done = f"{progress.done} of {progress.total} jobs are done and kept"
    return f"{done}; to go on: ct fleet resume {fleet}"
