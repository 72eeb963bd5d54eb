"""The pages to log in, to approve another program's login, and for one's tokens; they need no scripts."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import APIRouter, Request, Response

from control_tower.agent_runs.accounts import devices
from control_tower.agent_runs.accounts.login import log_in
from control_tower.agent_runs.accounts.sessions import LONGEST, end_session, start_session
from control_tower.agent_runs.accounts.throttle import take_turn
from control_tower.agent_runs.accounts.tokens import (
    DEFAULT_DAYS,
    DEFAULT_SCOPES,
    MOST_DAYS,
    all_tokens,
    check_scopes,
    make_token,
    revoke_token,
)
from control_tower.agent_runs.accounts.users import User, set_password, user_by_password
from control_tower.agent_runs.actor import SCOPES
from control_tower.agent_runs.errors import BadRequest, TooMany
from control_tower.errors import ExpectedError
from control_tower.viewer.auth.actor import (
    address,
    base_url,
    check_form,
    cookie_name,
    form_token,
    network,
    note,
    session_actor,
    session_user,
    site_of,
)
from control_tower.viewer.errors import Refusal, refusal_of

if TYPE_CHECKING:
    from jinja2 import Environment

CODES_PER_MINUTE = 10
"""Codes of other programs' logins that a user may enter in a minute."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    # With no-referrer, browsers would send the forms of this page with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_LONGEST_FORM = 16 * 1024

pages = APIRouter(include_in_schema=False)


@pages.get("/static/login.css")
async def style() -> Response:
    """How these pages look."""
    return Response(_text("login.css"), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@pages.get("/login")
async def login_page(request: Request) -> Response:
    """The form to log in."""
    return _login_page(request, _local_path(request.query_params.get("next", "")))


@pages.post("/login")
async def login(request: Request) -> Response:
    """Log in, and go where one was going."""
    form = await _form(request)
    then = _local_path(form.get("next", ""))
    site = site_of(request)
    try:
        check_form(request, form.get("form_token", ""))
        user = await log_in(
            site.store,
            site.now(),
            form.get("username", ""),
            form.get("password", ""),
            address=address(request),
            network=network(request),
            request_id=request.state.request_id,
        )
    except ExpectedError as error:
        return _login_page(request, then, error)
    if before := request.cookies.get(cookie_name(request)):
        await end_session(site.store, before)
    answer = _go(request, then)
    _set_cookie(request, answer, await start_session(site.store, site.now(), user), LONGEST)
    return answer


@pages.post("/logout")
async def logout(request: Request) -> Response:
    """End the session."""
    check_form(request, (await _form(request)).get("form_token", ""))
    if cookie := request.cookies.get(cookie_name(request)):
        await end_session(site_of(request).store, cookie)
    answer = _go(request, "/login")
    _set_cookie(request, answer, "", 0)
    return answer


@pages.get("/device")
async def device_page(request: Request) -> Response:
    """Ask for a code, or say what the program behind it wants."""
    user = await session_user(request)
    if user is None:
        return _to_login(request)
    code = request.query_params.get("user_code", "")
    if not code:
        return _page(request, "device.html", user=user)
    try:
        asked = await _asked(request, user, code)
    except ExpectedError as error:
        return _page(request, "device.html", user=user, error=error)
    granted = sorted(asked.scopes & SCOPES[user.role])
    refused = sorted(asked.scopes - SCOPES[user.role])
    return _page(request, "device.html", user=user, asked=asked, granted=granted, refused=refused)


@pages.post("/device")
async def decide_device(request: Request) -> Response:
    """Approve or deny."""
    user = await session_user(request)
    if user is None:
        return _to_login(request)
    form = await _form(request)
    site = site_of(request)
    approve = form.get("decision") == "approve"
    try:
        check_form(request, form.get("form_token", ""))
        await _asked(request, user, form.get("user_code", ""))
        asked = await devices.decide(site.store, site.now(), form.get("user_code", ""), user, approve=approve)
    except ExpectedError as error:
        return _page(request, "device.html", user=user, error=error)
    action = "device.approve" if approve else "device.deny"
    await note(request, action, asked.label, session_actor(user), asked_from=asked.network)
    return _page(request, "device.html", user=user, decided="approved" if approve else "denied")


@pages.get("/settings/tokens")
async def tokens_page(request: Request) -> Response:
    """One's tokens."""
    user = await session_user(request)
    return _to_login(request) if user is None else await _tokens_page(request, user)


@pages.post("/settings/tokens")
async def change_tokens(request: Request) -> Response:
    """Make a token and show it, or revoke one, or change the password."""
    user = await session_user(request)
    if user is None:
        return _to_login(request)
    form = await _form(request)
    try:
        check_form(request, form.get("form_token", ""))
        if token_id := form.get("revoke"):
            site = site_of(request)
            await revoke_token(site.store, site.now(), token_id, owner=user.name)
            await note(request, "token.revoke", token_id, session_actor(user), owner=user.name)
            return _go(request, "/settings/tokens")
        if "new_password" in form:
            return await _change_password(request, user, form)
        return await _make_token(request, user, form)
    except ExpectedError as error:
        return await _tokens_page(request, user, error=error)


async def _make_token(request: Request, user: User, form: dict[str, str]) -> Response:
    site = site_of(request)
    days = form.get("days", "")
    if not days.isdecimal():
        raise BadRequest(f"valid for {days!r} days: write a whole number")
    made = await make_token(
        site.store,
        site.now(),
        user,
        form.get("label", ""),
        check_scopes([name for name in SCOPES["admin"] if name in form]),
        days=int(days[:9]),
    )
    actor = session_actor(user)
    await note(request, "token.create", made.token.id, actor, owner=user.name, label=made.token.label)
    return await _tokens_page(request, user, made=made.text)


async def _change_password(request: Request, user: User, form: dict[str, str]) -> Response:
    site = site_of(request)
    turn = await take_turn(site.store, site.now(), f"password:{user.name}", 5)
    if turn.refused_for:
        raise TooMany("too many attempts; wait a minute", turn.refused_for)
    if await user_by_password(site.store, user.name, form.get("password", "")) is None:
        raise BadRequest("the present password is wrong")
    await set_password(site.store, user.name, form["new_password"])
    await note(request, "user.password", user.name, session_actor(user))
    return _go(request, "/login")


async def _asked(request: Request, user: User, code: str) -> devices.Asked:
    site = site_of(request)
    turn = await take_turn(site.store, site.now(), f"code:{user.name}", CODES_PER_MINUTE)
    if turn.refused_for:
        raise TooMany("too many codes; wait a minute", turn.refused_for)
    asked = await devices.asked(site.store, site.now(), code)
    if asked is None:
        raise BadRequest("no login waits under this code: check it, or start `ct login` again")
    return asked


async def _tokens_page(request: Request, user: User, **values: Any) -> Response:
    return _page(
        request,
        "tokens.html",
        user=user,
        tokens=[each for each in await all_tokens(site_of(request).store, user.name) if not each.revoked],
        scopes=sorted(SCOPES[user.role]),
        chosen=DEFAULT_SCOPES,
        days=DEFAULT_DAYS,
        most_days=MOST_DAYS,
        **values,
    )


def _login_page(request: Request, then: str, error: ExpectedError | None = None) -> Response:
    return _page(request, "login.html", then=then, error=error)


def _page(request: Request, name: str, *, error: ExpectedError | None = None, **values: Any) -> Response:
    if site_of(request).settings.mode == "local":
        name, error = "local.html", None
    refusal = refusal_of(error) if error else Refusal(200, "", "")
    text = (
        _templates()
        .get_template(name)
        .render(
            error=refusal.detail,
            form_token=form_token(request),
            base=base_url(request),
            prefix=_prefix(request),
            **values,
        )
    )
    headers = {key: value for key, value in refusal.headers.items() if key == "Retry-After"}
    return Response(text, refusal.status, headers={**_HEADERS, **headers}, media_type="text/html")


def _to_login(request: Request) -> Response:
    here = request.url.path + (
        f"?{request.url.query}" if request.method == "GET" and request.url.query else ""
    )
    if site_of(request).settings.mode == "local":
        return _page(request, "local.html")
    return _go(request, f"/login?next={quote(_local_path(here), safe='')}")


def _go(request: Request, path: str) -> Response:
    return Response(status_code=303, headers={**_HEADERS, "Location": _prefix(request) + path})


def _prefix(request: Request) -> str:
    """What a proxy puts before all our paths."""
    return urlsplit(base_url(request)).path.rstrip("/")


def _local_path(text: str) -> str:
    """A path of this viewer to go to after a login; anything else is the start page of tokens."""
    plain = (
        text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    )
    return text if plain else "/settings/tokens"


def _set_cookie(request: Request, answer: Response, value: str, seconds: int) -> None:
    name = cookie_name(request)
    answer.set_cookie(
        name, value, max_age=seconds, path="/", secure=name != "ct", httponly=True, samesite="lax"
    )


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, of several of one name the last."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _LONGEST_FORM:
            raise BadRequest("this form is too long")
    return dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("control_tower.viewer.auth")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


@cache
def _text(name: str) -> str:
    return resources.files("control_tower.viewer.auth").joinpath("templates", name).read_text()
