"""The user of a request: by token, by session, or the one at this machine; and whether a browser meant it."""

from __future__ import annotations

import getpass
import hmac
import ipaddress
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from fastapi import Request

from control_tower.agent_runs.accounts.sessions import user_by_session
from control_tower.agent_runs.accounts.tokens import actor_by_token
from control_tower.agent_runs.accounts.users import User
from control_tower.agent_runs.actor import SCOPES, Actor
from control_tower.agent_runs.audit import Event, record
from control_tower.agent_runs.errors import Forbidden, NotAuthenticated

if TYPE_CHECKING:
    from control_tower.agent_runs.site import Site

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


async def current_actor(request: Request) -> Actor:
    """Who asks; a dependency of handlers.

    Args:
        request: Of an application whose `state.site` is its `Site`.

    Raises:
        NotAuthenticated: There is no valid token or session.
        Forbidden: A browser sends this for a page that is not the viewer's own.
    """
    site = site_of(request)
    if site.settings.mode == "local":
        _check_origin(request, required=False)
        return Actor("local", _os_user(), "admin", SCOPES["admin"])
    if said := request.headers.get("Authorization"):
        kind, _, token = said.partition(" ")
        actor = None
        if kind.lower() == "bearer":
            actor = await actor_by_token(site.store, site.now(), token.strip(), network=network(request))
        if actor is None:
            raise NotAuthenticated("the token is unknown, expired or revoked: log in with `ct login`")
        return actor
    user = await session_user(request)
    if user is None:
        raise NotAuthenticated("log in with `ct login`, or in the browser at /login")
    if request.method not in _SAFE:
        _check_origin(request, required=True)
        if request.headers.get("X-CT-Request") != "1":
            raise Forbidden("a request by session needs the header X-CT-Request: 1")
    return session_actor(user)


async def session_user(request: Request) -> User | None:
    """Who is logged in in this browser."""
    site = site_of(request)
    cookie = request.cookies.get(cookie_name(request))
    return await user_by_session(site.store, site.now(), cookie) if cookie else None


def session_actor(user: User) -> Actor:
    """A user who is logged in by password, with all that the role allows."""
    return Actor(user.name, user.name, user.role, SCOPES[user.role])


def check_form(request: Request, token: str) -> None:
    """Whether a form was sent from a page of ours.

    Args:
        request: With the form.
        token: What the form says in `form_token`.

    Raises:
        Forbidden: It was not.
    """
    _check_origin(request, required=True)
    if not hmac.compare_digest(token.encode("utf-8", "replace"), form_token(request).encode()):
        raise Forbidden("this form is out of date: load the page again")


def form_token(request: Request) -> str:
    """What forms of a page must send back; another one for each session."""
    return site_of(request).sign("form", request.cookies.get(cookie_name(request), ""))


def base_url(request: Request) -> str:
    """The viewer's address as its users see it, without a slash at the end."""
    return site_of(request).settings.public_url or str(request.base_url).rstrip("/")


def cookie_name(request: Request) -> str:
    """What the session's cookie is called; with TLS in a way that no other host can set it."""
    return "__Host-ct" if urlsplit(base_url(request)).scheme == "https" else "ct"


def address(request: Request) -> str:
    """Whose attempts are counted together: an IPv4 address, or the network of an IPv6 one."""
    return _within(request, 32, 64)


def network(request: Request) -> str:
    """Where a request comes from, as it is shown and kept: not the very address."""
    return _within(request, 24, 48)


async def note(
    request: Request, action: str, target: str, actor: Actor, **details: str | float | None
) -> None:
    """Adds what a user did to the audit trail."""
    site = site_of(request)
    request_id = getattr(request.state, "request_id", None)
    event = Event(action, target, actor.user_id, actor.token_id, True, network(request), request_id, details)
    await record(site.store, site.now(), event)


def site_of(request: Request) -> Site:
    """The site of the application that answers."""
    return cast("Site", request.app.state.site)


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In containers the user may have no name.
        return "local"


def _check_origin(request: Request, *, required: bool) -> None:
    """Browsers say which page sends a request that changes something; other programs say nothing."""
    if request.method in _SAFE:
        return
    said = request.headers.get("Origin")
    if said is None and not required:
        said = {"cross-site": "null", "same-site": "null"}.get(request.headers.get("Sec-Fetch-Site", ""))
        if said is None:
            return
    if said is None or said not in {_origin(base_url(request)), _origin(str(request.base_url))}:
        raise Forbidden(
            "this was not sent from a page of this viewer; if it was, there is a proxy before the viewer, "
            "whose operator has to set CONTROL_TOWER_VIEWER_URL"
        )


def _origin(url: str) -> str:
    """Scheme, host and port as browsers write them; nothing that they write when it is no address."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def _within(request: Request, bits4: int, bits6: int) -> str:
    host = request.client.host if request.client else ""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    bits = bits4 if found.version == 4 else bits6
    return str(ipaddress.ip_network(f"{found}/{bits}", strict=False)).removesuffix("/32")
