"""What was done to runs, users and tokens, kept as events that are only ever added."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import AUDIT_EVENTS


@dataclass(frozen=True)
class Event:
    """One thing that was done or refused; never secrets, never text of transcripts."""

    action: str
    """What, as `<kind>.<verb>`: `token.create`, `run.delete`."""
    target: str
    """To what: an id or a user's name."""
    actor: str | None
    """Id of the user; None when nobody was known."""
    token_id: str | None = None
    """Public id of the token it was done with."""
    allowed: bool = True
    network: str | None = None
    """From where, see `network`."""
    request_id: str | None = None
    details: Mapping[str, str | float | None] = field(default_factory=dict[str, "str | float | None"])


async def record(store: Store, now: float, event: Event) -> None:
    """Adds an event.

    Args:
        store: Of the viewer.
        now: When, Unix seconds.
        event: What was done.
    """
    at = rfc3339(now)
    listed = {
        "at": at,
        "action": event.action,
        "target": event.target,
        "actor": event.actor,
        "token_id": event.token_id,
        "allowed": event.allowed,
        "network": event.network,
        "request_id": event.request_id,
        "details": dict(event.details),
    }
    columns = {"at": at, "actor": event.actor, "action": event.action, "target": event.target}
    await store.insert(AUDIT_EVENTS, [Row(f"{at}-{secrets.token_hex(4)}", columns, listed)])


def rfc3339(seconds: float) -> str:
    """A moment as text that sorts by time: UTC with microseconds.

    Args:
        seconds: Unix seconds.
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
