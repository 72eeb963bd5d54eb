"""Sessions: what keeps a browser logged in, as a cookie whose hash is kept."""

from __future__ import annotations

import secrets

from control_tower.agent_runs.accounts.changing import change, edited
from control_tower.agent_runs.accounts.token_text import hash_of
from control_tower.agent_runs.accounts.users import User, find_user
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import SESSIONS
from control_tower.agent_runs.store.where import Compare

IDLE = 12 * 3600
"""Seconds without a request after which a session ends."""
LONGEST = 7 * 86400
"""Seconds after which it ends whatever happens."""

_NOTED_EVERY = 600


async def start_session(store: Store, now: float, user: User) -> str:
    """Starts a session.

    Returns:
        The cookie's value.
    """
    cookie = secrets.token_urlsafe(32)
    row = Row(
        hash_of(cookie), {"user_id": user.name, "expires": rfc3339(now + IDLE)}, {"started": now, "seen": now}
    )
    await store.delete(SESSIONS, Compare("expires", "<=", rfc3339(now)))
    await store.insert(SESSIONS, [row])
    return cookie


async def user_by_session(store: Store, now: float, cookie: str) -> User | None:
    """Whose session a cookie is; None when it has ended, or the user is kept out."""
    key = hash_of(cookie)
    row = (await store.get(SESSIONS, [key])).get(key)
    if row is None or str(row.columns["expires"]) <= rfc3339(now):
        return None
    user = await find_user(store, str(row.columns["user_id"]))
    if user is None or user.disabled:
        return None
    if now - row.listed["seen"] >= _NOTED_EVERY:
        ends = min(now + IDLE, row.listed["started"] + LONGEST)
        await store.replace(SESSIONS, edited(row, {"expires": rfc3339(ends)}, {"seen": now}))
    return user


async def end_session(store: Store, cookie: str) -> None:
    """Ends a session; one that has ended is no error."""
    await change(store, SESSIONS, hash_of(cookie), lambda row: edited(row, {"expires": ""}))
