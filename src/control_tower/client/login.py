"""Logging in to a viewer: by password, by approval in a browser, or with a token that was pasted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from control_tower.agent_runs.accounts.token_text import public_id_of
from control_tower.client.origins import base_of, check_secure, origin
from control_tower.client.session import NotThere, connect
from control_tower.client.tokens import Credentials, KeptToken, check_token, keep_token, kept_token
from control_tower.errors import OperationError, StateError, on_one_line

_DENIED = {
    "access_denied": "the login was denied",
    "expired_token": "the login was not approved in time: start it again",
}


@dataclass(frozen=True)
class DeviceLogin:
    """A login that waits for its user's approval in a browser."""

    user_code: str
    """What the user enters there."""
    page: str
    """Where."""
    page_with_code: str
    """The same, with the code filled in."""
    device_code: str = field(repr=False)
    expires_in: float
    """Seconds."""
    interval: float
    """Seconds between questions."""


async def by_password(
    url: str, user: str, password: str, *, description: str | None, insecure: bool = False
) -> KeptToken:
    """Logs in by password, and keeps the token.

    Args:
        url: Of the viewer.
        user: Name of the user.
        password: Theirs.
        description: What the token is called at the viewer; None leaves it to the viewer.
        insecure: Whether it may go to another machine without TLS.

    Raises:
        StateError: The name or the password is wrong.
        OperationError: The viewer cannot be reached.
        UsageError: The address is none, or not safe.
    """
    base = check_address(url, insecure=insecure)
    body = {"username": user, "password": password}
    if description:
        body["description"] = description
    async with connect(Credentials(base)) as viewer:
        answer = await viewer.call("POST", "/api/auth/login", json=body, again=False, accept=frozenset({401}))
    if answer.status_code == 401:
        raise StateError(f"{base}: the user name or the password is wrong")
    token = _text(base, _object(base, answer.content), "token")
    return await _keep(base, token, insecure=insecure, user=user)


async def by_token(url: str, token: str, *, insecure: bool = False) -> KeptToken:
    """Keeps a token that was made elsewhere, if the viewer takes it.

    Raises:
        StateError: The viewer does not.
        OperationError: The viewer cannot be reached.
        UsageError: The address is none, or not safe, or this is no token.
    """
    base = check_address(url, insecure=insecure)
    return await _keep(base, check_token(token, "what was pasted"), insecure=insecure)


async def by_device(
    url: str,
    show: Callable[[DeviceLogin], None],
    *,
    description: str | None,
    insecure: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> KeptToken:
    """Logs in by approval in any browser where the user is logged in, and keeps the token.

    Waits for the approval, through failures of the network, until the login expires.

    Args:
        url: Of the viewer.
        show: Says to the user what to do; called once.
        description: What the token is called at the viewer.
        insecure: Whether it may come from another machine without TLS.
        sleep: How to wait.

    Raises:
        StateError: It was denied, or not approved in time; or the viewer has no such logins.
        OperationError: The viewer cannot be reached.
        UsageError: The address is none, or not safe.
    """
    base = check_address(url, insecure=insecure)
    async with connect(Credentials(base)) as viewer:
        try:
            answer = await viewer.call("POST", "/api/v1/auth/device", json={"description": description})
        except NotThere:
            raise StateError(f"{base}: this viewer only knows logins by password: ct login -u USER") from None
        login = _device_login(base, _object(base, answer.content))
        show(login)
        ends, interval = time.monotonic() + login.expires_in, login.interval
        while time.monotonic() < ends:
            await sleep(interval)
            try:
                answer = await viewer.call(
                    "POST",
                    "/api/v1/auth/device/token",
                    json={"device_code": login.device_code},
                    again=False,
                    accept=frozenset({400}),
                )
            except OperationError:
                continue
            found = _object(base, answer.content)
            if answer.is_success:
                return await _keep(base, _text(base, found, "token"), insecure=insecure)
            match found.get("code"):
                case "authorization_pending":
                    pass
                case "slow_down":
                    interval += login.interval
                case code:
                    raise StateError(
                        f"{base}: {_DENIED.get(str(code)) or on_one_line(str(found.get('error')))}"
                    )
    raise StateError(f"{base}: {_DENIED['expired_token']}")


def check_address(url: str, *, insecure: bool = False) -> str:
    """A viewer's address, as it is written, if secrets may be sent there.

    Raises:
        UsageError: The address is none, or not safe.
    """
    check_secure(url, allowed=insecure)
    return base_of(url)


async def revoke_kept(url: str) -> None:
    """Makes the token that is kept for a viewer worthless; one that is worthless already is no error.

    Raises:
        StateError: It is a token that only its viewer's pages can revoke.
        OperationError: The viewer cannot be reached.
    """
    kept = kept_token(url)
    if kept is None:
        return
    token_id = public_id_of(kept.token)
    if token_id is None:
        raise StateError(f"{kept.url}: this token can only be revoked in the viewer; leave --revoke out")
    async with connect(Credentials(kept.url, kept.token)) as viewer:
        await viewer.call("DELETE", f"/api/v1/tokens/{token_id}", accept=frozenset({401}))


async def _keep(base: str, token: str, *, insecure: bool, user: str | None = None) -> KeptToken:
    """Keeps a token once the viewer has taken it."""
    async with connect(Credentials(base, token)) as viewer:
        try:
            who = _object(base, (await viewer.call("GET", "/api/v1/whoami")).content)
        except NotThere:
            who = cast("dict[str, Any]", {"name": user})
    kept = KeptToken(
        base,
        token,
        _text(base, who, "name") if who.get("name") else None,
        tuple(str(scope) for scope in who.get("scopes") or () if str(scope).isprintable()),
        _text(base, who, "expires") if who.get("expires") else None,
        insecure=insecure,
    )
    keep_token(kept)
    return kept


def _device_login(base: str, found: dict[str, Any]) -> DeviceLogin:
    login = DeviceLogin(
        _text(base, found, "user_code"),
        _text(base, found, "verification_uri"),
        _text(base, found, "verification_uri_complete"),
        _text(base, found, "device_code"),
        _seconds(base, found, "expires_in"),
        _seconds(base, found, "interval"),
    )
    for page in (login.page, login.page_with_code):
        origin(page)
    return login


def _text(base: str, found: dict[str, Any], name: str) -> str:
    """A text that can be shown."""
    text = found.get(name)
    if not isinstance(text, str) or not text or not text.isprintable():
        raise OperationError(f"{base}: the answer has no {name}; is this a viewer?")
    return text


def _seconds(base: str, found: dict[str, Any], name: str) -> float:
    """A time to wait, at most an hour."""
    number = found.get(name)
    if not isinstance(number, int | float) or not 1 <= number <= 3600:
        raise OperationError(f"{base}: the answer has no {name} of 1 to 3600 seconds; is this a viewer?")
    return number


def _object(base: str, data: bytes) -> dict[str, Any]:
    from control_tower.logs.json_text import BadJson, loads

    try:
        found = loads(data)
    except BadJson:
        found = None
    if not isinstance(found, dict):
        raise OperationError(f"{base}: the answer is not that of a viewer")
    return cast("dict[str, Any]", found)
