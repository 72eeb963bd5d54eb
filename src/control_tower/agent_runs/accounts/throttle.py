"""How often something may be done in a minute, counted for all servers together."""

from __future__ import annotations

from dataclasses import dataclass

from control_tower.agent_runs.accounts.changing import change, edited
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import THROTTLES
from control_tower.agent_runs.store.where import Compare

_MINUTE = 60


@dataclass(frozen=True)
class Turn:
    """Whether something may be done now."""

    refused_for: float
    """Seconds until it may be tried again; 0 when it may be done."""
    earlier: int
    """How often it was done within the last minute."""


async def take_turn(store: Store, now: float, key: str, per_minute: int) -> Turn:
    """Counts something that is done, unless it was done too often.

    What is refused does not count, so whoever knocks on cannot be kept out for more than a minute.

    Args:
        store: Where it is counted.
        now: Unix seconds.
        key: What is done, and by whom.
        per_minute: How often it may be done in any minute.
    """
    turn = Turn(0.0, 0)

    def counted(row: Row) -> Row | None:
        nonlocal turn
        times = [time for time in row.listed["times"] if now - _MINUTE < time <= now]
        if len(times) >= per_minute:
            turn = Turn(times[-per_minute] + _MINUTE - now, len(times))
            return None
        turn = Turn(0.0, len(times))
        return edited(row, {"expires": rfc3339(now + _MINUTE)}, {"times": [*times, now]})

    await store.insert(THROTTLES, [Row(key, {"expires": rfc3339(now + _MINUTE)}, {"times": []})])
    await change(store, THROTTLES, key, counted)
    return turn


async def forget_old(store: Store, now: float) -> None:
    """Drops what no longer limits anything."""
    await store.delete(THROTTLES, Compare("expires", "<=", rfc3339(now)))
