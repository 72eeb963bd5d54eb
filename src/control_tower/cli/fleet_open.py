"""Fleets of this user by name, for the commands of `ct fleet`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from control_tower.fleet.drive import Opened, living_controller, open_local
from control_tower.fleet.place import local_place
from control_tower.fleet.plan import FleetFile, known_fleets
from control_tower.fleet.status import Seen, fleet_named, look
from control_tower.fleet.tasks import Tasks


def fleets() -> list[FleetFile]:
    """All of them, the newest first."""
    return known_fleets(local_place("").root)


def opened(text: str) -> Opened:
    """The fleet whose id begins so.

    Raises:
        StateError: There is none, or there are several.
    """
    return asyncio.run(open_local(fleet_named(text, [file.fleet for file in fleets()])))


def controller_of(fleet: Opened) -> str | None:
    """Who is its controller now, None for nobody."""
    return asyncio.run(living_controller(fleet))


def seen(fleet: Opened) -> Seen:
    """How a fleet is doing."""
    tasks = Tasks()
    outside = replace(fleet.outside, spawn=tasks.spawn)
    work = look(fleet.plan, outside, fleet.provider, fleet.events, controller_of(fleet))
    return asyncio.run(tasks.run(work))
