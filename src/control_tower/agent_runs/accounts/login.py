"""A login by password: slow for who guesses, the same answer whatever was wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from control_tower.agent_runs.accounts.throttle import Turn, forget_old, take_turn
from control_tower.agent_runs.accounts.token_text import hash_of
from control_tower.agent_runs.accounts.users import User, add_user, find_user, key_of, user_by_password
from control_tower.agent_runs.audit import Event, record, rfc3339
from control_tower.agent_runs.errors import BadRequest, NotAuthenticated, TooMany
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import THROTTLES
from control_tower.errors import UsageError

PER_ADDRESS = 10
PER_USER = 5
"""Logins in a minute."""

_KNOWN_FOR = 30 * 86400
NAME = "CONTROL_TOWER_API_AUTH_USERNAME"
PASSWORD = "CONTROL_TOWER_API_AUTH_PASSWORD"
"""Variables that name the first admin."""


async def log_in(
    store: Store,
    now: float,
    name: str,
    password: str,
    *,
    address: str,
    network: str,
    request_id: str | None = None,
) -> User:
    """The user that a name and a password are of.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        name: Of the user.
        password: Theirs.
        address: Where they are; guesses are counted by it.
        network: The same less exactly, which may be kept.
        request_id: For the audit trail.

    Raises:
        NotAuthenticated: There is no such user, the password is wrong, or the user is kept out.
        TooMany: There were too many attempts.
    """
    await forget_old(store, now)
    key = key_of(name)
    who = hash_of(key)
    known = f"known:{who}@{network}"
    # Who guesses from elsewhere must not keep users out of where they have been before.
    among = f"@{network}" if await store.get(THROTTLES, [known]) else ""
    for turn in (
        await take_turn(store, now, f"login:{address}", PER_ADDRESS),
        await take_turn(store, now, f"login:{who}{among}", PER_USER),
    ):
        await _wait(turn)
    user = await user_by_password(store, key, password)
    # A name that nobody has may be a password that was typed in the wrong field.
    target = key if await find_user(store, key) else "nobody"
    event = Event("login", target, user and user.name, None, user is not None, network, request_id)
    await record(store, now, event)
    if user is None:
        raise NotAuthenticated("the user name or the password is wrong")
    await store.insert(THROTTLES, [Row(known, {"expires": rfc3339(now + _KNOWN_FOR)}, {"times": []})])
    return user


async def _wait(turn: Turn) -> None:
    if turn.refused_for:
        raise TooMany("too many logins; wait a minute", turn.refused_for)
    if turn.earlier >= 2:
        await asyncio.sleep(min(0.25 * 2 ** (turn.earlier - 2), 2))


async def add_first_admin(store: Store, now: float, environment: Mapping[str, str] | None = None) -> None:
    """Adds the admin whom the environment names, unless there is a user of that name.

    Raises:
        UsageError: The environment gives one of name and password, or an unusable one.
    """
    environment = os.environ if environment is None else environment
    name, password = environment.get(NAME), environment.get(PASSWORD)
    if name is None and password is None:
        return
    if not name or not password:
        raise UsageError(f"{NAME} and {PASSWORD}: set both, to more than nothing, or neither")
    if await find_user(store, name) is None:
        try:
            await add_user(store, now, name, "admin", password)
        except BadRequest as error:
            raise UsageError(f"{NAME} or {PASSWORD}: {error}") from None
        await record(store, now, Event("user.create", name, None, details={"role": "admin"}))
