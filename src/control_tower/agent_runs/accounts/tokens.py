"""Tokens: what programs say to be let in as a user."""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from control_tower.agent_runs.accounts.changing import change, edited
from control_tower.agent_runs.accounts.token_text import hash_of, new_token, public_id_of
from control_tower.agent_runs.accounts.users import User, find_user
from control_tower.agent_runs.actor import SCOPES, Actor, Scope
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.errors import BadRequest, NotFound
from control_tower.agent_runs.store.interface import Row, Sort, Store
from control_tower.agent_runs.store.tables import TOKENS
from control_tower.agent_runs.store.where import EVERY, Equals

DEFAULT_DAYS = 90
MOST_DAYS = 365
DEFAULT_SCOPES: frozenset[Scope] = frozenset({"runs:read", "runs:write"})
"""What is asked for where nothing is said."""

_DAY = 86400
_LONGEST_LABEL = 100


@dataclass(frozen=True)
class Token:
    """What is known of a token; its secret is not."""

    id: str
    """The public id."""
    owner: str
    label: str
    scopes: frozenset[Scope]
    """What it was made for; the owner's role may allow less by now."""
    created: str
    """RFC 3339, as all times here."""
    expires: str | None
    """None: never."""
    last_used: str | None
    """To the minute."""
    network: str | None
    """Where it was last used from."""
    revoked: str | None


@dataclass(frozen=True)
class NewToken:
    """A token, with the only copy of its secret."""

    token: Token
    text: str = field(repr=False)


def check_scopes(scopes: Collection[str]) -> frozenset[Scope]:
    """Names of scopes as scopes.

    Raises:
        BadRequest: One is unknown, or there is none.
    """
    unknown = sorted(set(scopes) - SCOPES["admin"])
    if unknown or not scopes:
        known = ", ".join(sorted(SCOPES["admin"]))
        raise BadRequest(
            f"{unknown[0]!r} is no scope; there are: {known}" if unknown else "no scope is named"
        )
    return cast("frozenset[Scope]", frozenset(scopes))


def clean_label(label: str | None, default: str) -> str:
    """A token's label on one line, without characters that a reader cannot see."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in label or "")
    return " ".join(shown.split())[:_LONGEST_LABEL] or default


async def make_token(
    store: Store,
    now: float,
    owner: User,
    label: str,
    scopes: Collection[Scope] = DEFAULT_SCOPES,
    *,
    days: float | None = None,
    at_most: Actor | None = None,
) -> NewToken:
    """Makes a token.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        owner: Whose requests it makes.
        label: What it is for.
        scopes: What it may be used for, as far as the owner's role goes.
        days: How long it is valid, at most 365; 90 when left out. 0 is for ever, for service accounts.
        at_most: Who makes it: with a token, the new one has no more scopes and ends no later.

    Raises:
        BadRequest: No scope is left, or it would be valid too long.
    """
    days = DEFAULT_DAYS if days is None else days
    if not 0 <= days <= MOST_DAYS or (days == 0 and not owner.service):
        forever = "; 0, for ever, is for service accounts" if days == 0 else ""
        raise BadRequest(f"a token is valid for at most {MOST_DAYS} days, not {days:g}{forever}")
    expires = rfc3339(now + days * _DAY) if days else None
    given = frozenset(scopes) & SCOPES[owner.role]
    if at_most is not None and at_most.token_id is not None:
        given &= at_most.scopes
        expires = min((each for each in (expires, at_most.expires) if each), default=None)
    if not given:
        raise BadRequest(f"{owner.name} ({owner.role}) may not have a token for {', '.join(sorted(scopes))}")
    public_id, text = new_token()
    row = Row(
        public_id,
        {"user_id": owner.name, "revoked": None, "expires": expires, "created": rfc3339(now)},
        {"label": clean_label(label, "no label"), "scopes": sorted(given)},
        {"sha256": hash_of(text)},
    )
    await store.insert(TOKENS, [row])
    return NewToken(_token(row), text)


async def actor_by_token(store: Store, now: float, text: str, *, network: str | None = None) -> Actor | None:
    """Who a token lets in, None when it does not.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        text: The token.
        network: Where it is used from.
    """
    public_id = public_id_of(text)
    row = (await store.get(TOKENS, [public_id])).get(public_id) if public_id else None
    kept = str(row.document["sha256"]) if row else hash_of("")
    right = hmac.compare_digest(kept, hash_of(text))
    if row is None or not right or _is_dead(row, now):
        return None
    owner = await find_user(store, str(row.columns["user_id"]))
    if owner is None or owner.disabled:
        return None
    await _note_use(store, now, row, network)
    token = _token(row)
    scopes = token.scopes & SCOPES[owner.role]
    return Actor(owner.name, owner.name, owner.role, scopes, token.id, token.expires)


async def all_tokens(store: Store, owner: str | None = None) -> list[Token]:
    """The tokens of a user, or of all, the newest first."""
    where = EVERY if owner is None else Equals("user_id", owner)
    return [_token(row) for row in await store.find(TOKENS, where, sort=Sort("created", descending=True))]


async def revoke_token(store: Store, now: float, token_id: str, *, owner: str | None = None) -> Token:
    """Makes a token worthless from its next use on; one that is revoked already stays so.

    Args:
        store: Of the viewer.
        now: Unix seconds.
        token_id: Its public id.
        owner: Whose it must be.

    Raises:
        NotFound: There is no such token, or it is another user's.
    """

    def revoked(row: Row) -> Row | None:
        if owner is not None and row.columns["user_id"] != owner:
            return None
        return edited(row, {"revoked": row.columns.get("revoked") or rfc3339(now)})

    row = await change(store, TOKENS, token_id, revoked)
    if row is None:
        raise NotFound(f"there is no token {token_id!r}")
    return _token(row)


def _is_dead(row: Row, now: float) -> bool:
    expires = cast("str | None", row.columns.get("expires"))
    return row.columns.get("revoked") is not None or (expires is not None and expires <= rfc3339(now))


async def _note_use(store: Store, now: float, row: Row, network: str | None) -> None:
    """Once a minute; whoever changes the row at the same time goes first."""
    minute = rfc3339(now // 60 * 60)
    if row.listed.get("last_used") != minute:
        await store.replace(TOKENS, edited(row, listed={"last_used": minute, "network": network}))


def _token(row: Row) -> Token:
    def text(value: object) -> str | None:
        return None if value is None else str(value)

    return Token(
        row.id,
        str(row.columns["user_id"]),
        str(row.listed["label"]),
        cast("frozenset[Scope]", frozenset(row.listed["scopes"])),
        str(row.columns["created"]),
        text(row.columns.get("expires")),
        text(row.listed.get("last_used")),
        text(row.listed.get("network")),
        text(row.columns.get("revoked")),
    )
