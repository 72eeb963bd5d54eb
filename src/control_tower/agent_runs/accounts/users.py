"""Users of a viewer: their roles and passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from control_tower.agent_runs.accounts.changing import change, edited
from control_tower.agent_runs.accounts.passwords import hash_password, is_password
from control_tower.agent_runs.actor import SCOPES, Role
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.errors import BadRequest, Conflict, NotFound
from control_tower.agent_runs.store.interface import Row, Store
from control_tower.agent_runs.store.tables import SESSIONS, USERS
from control_tower.agent_runs.store.where import Equals

RESERVED = frozenset({"local"})
"""The id of whoever uses a viewer without login."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")


@dataclass(frozen=True)
class User:
    """Someone, or a program, that uses the viewer."""

    name: str
    """Also the id; small letters, never changes."""
    role: Role
    disabled: bool
    """Whether it is kept out, with all its tokens and sessions."""
    service: bool
    """Whether it is a program: it has tokens, but no password."""
    created: str
    """RFC 3339."""


async def add_user(store: Store, now: float, name: str, role: Role, password: str | None) -> User:
    """Adds a user.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        name: In letters of either case, which count as the same.
        role: What it may do.
        password: None makes a service account.

    Raises:
        BadRequest: The name or the password cannot be used.
        Conflict: There is a user of this name.
    """
    key = key_of(name)
    if not key:
        raise BadRequest(
            f"{name!r} cannot be a user's name: it has up to 64 letters, digits and . _ @ + -, begins with a "
            "letter or digit, and is not `local`"
        )
    _check_role(role)
    row = Row(
        key,
        {"role": role, "disabled": False},
        {"service": password is None, "created": rfc3339(now)},
        {} if password is None else {"password": await hash_password(password)},
    )
    if await store.insert(USERS, [row]):
        raise Conflict(f"there is a user {name!r} already")
    return _user(row)


async def all_users(store: Store) -> list[User]:
    """Every user, by name."""
    return [_user(row) for row in await store.find(USERS)]


async def find_user(store: Store, name: str) -> User | None:
    """The user of a name, None when there is none."""
    key = key_of(name)
    row = (await store.get(USERS, [key])).get(key)
    return row and _user(row)


async def change_user(
    store: Store, name: str, *, role: Role | None = None, disabled: bool | None = None
) -> User:
    """Gives a user another role, keeps it out or lets it in again; counts from its next request on.

    Raises:
        NotFound: There is no such user.
    """
    columns = {key: value for key, value in (("role", role), ("disabled", disabled)) if value is not None}
    if role is not None:
        _check_role(role)
    row = await change(store, USERS, key_of(name), lambda row: edited(row, columns))
    if row is None:
        raise NotFound(f"there is no user {name!r}")
    return _user(row)


async def set_password(store: Store, name: str, password: str) -> None:
    """Gives a user a new password and ends its sessions; its tokens stay.

    Raises:
        BadRequest: The password cannot be used, or the user is a service account.
        NotFound: There is no such user.
    """
    user = await find_user(store, name)
    if user is None:
        raise NotFound(f"there is no user {name!r}")
    if user.service:
        raise BadRequest(f"{name}: a service account has tokens, not a password")
    new = await hash_password(password)
    await change(store, USERS, user.name, lambda row: edited(row, document={"password": new}))
    await store.delete(SESSIONS, Equals("user_id", user.name))


async def user_by_password(store: Store, name: str, password: str) -> User | None:
    """The user that a name and a password are of; takes as long when there is none."""
    key = key_of(name)
    row = (await store.get(USERS, [key])).get(key)
    kept = cast("str | None", row.document.get("password")) if row else None
    right = await is_password(password, kept)
    return _user(row) if row and right and not row.columns.get("disabled") else None


def _user(row: Row) -> User:
    return User(
        row.id,
        cast("Role", row.columns["role"]),
        bool(row.columns["disabled"]),
        bool(row.listed["service"]),
        str(row.listed["created"]),
    )


def key_of(name: str) -> str:
    """The id of a user of this name, empty when there can be none."""
    return name.lower() if _NAME.fullmatch(name.lower()) and name.lower() not in RESERVED else ""


def _check_role(role: str) -> None:
    if role not in SCOPES:
        raise BadRequest(f"{role!r} is no role; there are: {', '.join(SCOPES)}")
