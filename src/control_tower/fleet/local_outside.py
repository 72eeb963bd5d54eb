"""The store and the queues of a fleet of this machine, as its controller and its workers see them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.keys import Keys
from control_tower.fleet.outside import Outside
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.ports import Clock
from control_tower.fleet.sqlite_queue import SqliteQueue


def local_outside(
    place: LocalPlace, clock: Clock, spawn: Callable[[Coroutine[Any, Any, None]], None]
) -> tuple[Outside, SqliteQueue]:
    """What a process of a fleet shares with the others.

    Args:
        place: Where the fleet is.
        clock: Of the process.
        spawn: Runs something beside the caller, until the process ends.

    Returns:
        It; and its queue of work, of which a worker that leaves need not wait for an answer.
    """
    work, safe, done = (SqliteQueue(place.queues, name, clock) for name in ("work", "safe", "done"))
    store = DirectoryStore(place.root)
    outside = Outside(Keys(place.fleet), store, work, safe, done, clock, spawn, lambda: secrets.token_hex(8))
    return outside, work
