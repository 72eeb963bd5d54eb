"""Logins without a browser: a program shows a short code, which its user enters where they are logged in."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, cast

from control_tower.agent_runs.accounts.changing import change, edited
from control_tower.agent_runs.accounts.token_text import hash_of
from control_tower.agent_runs.accounts.tokens import NewToken, clean_label, make_token
from control_tower.agent_runs.accounts.users import User, find_user
from control_tower.agent_runs.actor import SCOPES, Scope
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.errors import BadRequest, Conflict
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import DEVICE_GRANTS
from control_tower.agent_runs.store.where import Compare, Equals

EXPIRES_IN = 600
"""Seconds that a login may take."""
INTERVAL = 5
"""Seconds between two questions whether it was approved; grows by as much for who asks too often."""

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no words come out."""

Waiting = Literal["authorization_pending", "slow_down", "access_denied", "expired_token"]
"""Why there is no token, in the words of RFC 8628."""


@dataclass(frozen=True)
class Started:
    """A login that has begun."""

    device_code: str = field(repr=False)
    """What the program asks with; secret."""
    user_code: str
    """What its user enters, `ABCD-EFGH`."""


@dataclass(frozen=True)
class Asked:
    """What a program asks for, as its user sees it."""

    user_code: str
    label: str
    scopes: frozenset[Scope]
    network: str | None
    """Where it asks from."""


async def start(
    store: Store, now: float, label: str | None, scopes: Collection[Scope], network: str | None
) -> Started:
    """Begins a login.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        label: What the token is for.
        scopes: What is asked for.
        network: Where from.
    """
    await store.delete(DEVICE_GRANTS, Compare("expires", "<=", rfc3339(now - EXPIRES_IN)))
    listed = {
        "label": clean_label(label, "created via cli"),
        "scopes": sorted(scopes),
        "network": network,
        "state": "pending",
        "interval": INTERVAL,
        "polled": None,
    }
    while True:
        device_code = secrets.token_urlsafe(32)
        user_code = "".join(secrets.choice(_LETTERS) for _ in range(8))
        columns = {"user_code": user_code, "expires": rfc3339(now + EXPIRES_IN)}
        if not await store.insert(DEVICE_GRANTS, [Row(hash_of(device_code), columns, listed)]):
            return Started(device_code, f"{user_code[:4]}-{user_code[4:]}")


async def asked(store: Store, now: float, user_code: str) -> Asked | None:
    """What the program asks for whose code this is; None when nothing is open under it.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        user_code: In letters of either case, with or without the hyphen.
    """
    row = await _open_row(store, now, user_code)
    return row and Asked(
        user_code,
        str(row.listed["label"]),
        cast("frozenset[Scope]", frozenset(row.listed["scopes"])),
        cast("str | None", row.listed["network"]),
    )


async def decide(store: Store, now: float, user_code: str, user: User, *, approve: bool) -> Asked:
    """Approves or denies a login, once.

    Raises:
        Conflict: Nothing is open under this code: it was decided, has expired or never was.
        BadRequest: The user's role allows nothing of what is asked for.
    """
    row = await _open_row(store, now, user_code)
    found = row and await asked(store, now, user_code)
    if found and approve and not found.scopes & SCOPES[user.role]:
        raise BadRequest(f"{user.name} ({user.role}) may do nothing of what this login asks for")

    def decided(row: Row) -> Row | None:
        if row.listed["state"] != "pending":
            return None
        return edited(row, listed={"state": "approved" if approve else "denied", "user": user.name})

    if row is None or found is None or await change(store, DEVICE_GRANTS, row.id, decided) is None:
        raise Conflict("no login waits under this code: start `ct login` again")
    return found


async def poll(store: Store, now: float, device_code: str) -> NewToken | Waiting:
    """The token of a login, given once it was approved, and only once; else why there is none yet."""
    state: str = "expired_token"

    def polled(row: Row) -> Row | None:
        nonlocal state
        state, listed = _next(row, now)
        return edited(row, listed=listed) if listed else None

    row = await change(store, DEVICE_GRANTS, hash_of(device_code), polled)
    if row is None or row.listed["state"] != "used":
        return cast("Waiting", state)
    user = await find_user(store, str(row.listed["user"]))
    if user is None or user.disabled:
        return "access_denied"
    return await make_token(store, now, user, str(row.listed["label"]), row.listed["scopes"])


def _next(row: Row, now: float) -> tuple[str, dict[str, object]]:
    """What a question is answered with, and what it changes."""
    state = str(row.listed["state"])
    if str(row.columns["expires"]) <= rfc3339(now) or state == "used":
        return "expired_token", {}
    if state == "denied":
        return "access_denied", {}
    if state == "approved":
        return "approved", {"state": "used"}
    before, interval = row.listed["polled"], row.listed["interval"]
    if before is not None and now - before < interval:
        return "slow_down", {"polled": now, "interval": interval + INTERVAL}
    return "authorization_pending", {"polled": now}


async def _open_row(store: Store, now: float, user_code: str) -> Row | None:
    letters = "".join(c for c in user_code.upper() if c in _LETTERS)
    rows = await store.find(DEVICE_GRANTS, Equals("user_code", letters), limit=1)
    return next(
        (r for r in rows if str(r.columns["expires"]) > rfc3339(now) and r.listed["state"] == "pending"), None
    )
