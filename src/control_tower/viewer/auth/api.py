"""Logins, tokens and users over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from control_tower.agent_runs.accounts import devices
from control_tower.agent_runs.accounts.login import log_in
from control_tower.agent_runs.accounts.throttle import take_turn
from control_tower.agent_runs.accounts.tokens import (
    DEFAULT_SCOPES,
    NewToken,
    Token,
    all_tokens,
    check_scopes,
    make_token,
    revoke_token,
)
from control_tower.agent_runs.accounts.users import (
    User,
    add_user,
    all_users,
    change_user,
    find_user,
    set_password,
)
from control_tower.agent_runs.actor import Actor, Role, Scope
from control_tower.agent_runs.errors import Conflict, Forbidden, TooMany
from control_tower.viewer.actors import Admin, Someone
from control_tower.viewer.auth.actor import address, base_url, network, note, site_of
from control_tower.viewer.errors import Refusal
from control_tower.viewer.strict import StrictRoute

STARTS_PER_MINUTE = 10
"""Logins without a browser that one address may begin in a minute."""

_WAITING: dict[devices.Waiting, str] = {
    "authorization_pending": "nobody has approved this login yet",
    "slow_down": "asked too soon again: wait five seconds more than before",
    "access_denied": "this login was denied",
    "expired_token": "this login has expired, or its token was given out already",
}

Name = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]
Text = Annotated[str, Field(max_length=1024)]


class Login(BaseModel):
    """A user and their password."""

    username: Text
    password: Text
    description: Text | None = Field(None, description="What the token is for.")


class TokenRequest(BaseModel):
    """A token that is wanted."""

    description: Text | None = Field(None, description="What it is for.")
    scopes: list[str] | None = Field(
        None,
        description="`runs:read`, `runs:write`, `admin`, as far as the role goes; without it the first two.",
    )


class LastingTokenRequest(TokenRequest):
    """A token that is wanted, and for how long."""

    days: float | None = Field(None, description="Valid for so long, at most 365; 90 when left out.")


class TokenMade(BaseModel):
    """A new token; it is shown this once."""

    token: str = Field(description="What requests say as `Authorization: Bearer <token>`.")
    token_id: str
    user: str
    scopes: list[str]
    expires: str | None = Field(description="RFC 3339; null is never.")


class TokenInfo(BaseModel):
    """A token, without its secret."""

    id: str
    owner: str
    label: str
    scopes: list[str]
    created: str
    expires: str | None
    last_used: str | None = Field(description="To the minute.")
    network: str | None = Field(description="Where it was last used from.")
    revoked: str | None


class Tokens(BaseModel):
    """Tokens, the newest first."""

    items: list[TokenInfo]


class DeviceStarted(BaseModel):
    """A login that its user has yet to approve."""

    device_code: str = Field(description="What to ask for the token with; secret.")
    user_code: str = Field(description="What the user enters.")
    verification_uri: str
    verification_uri_complete: str
    expires_in: int = Field(description="Seconds.")
    interval: int = Field(description="Seconds to wait between two questions.")


class DeviceCode(BaseModel):
    """The secret of a login that was begun."""

    device_code: Text


class UserInfo(BaseModel):
    """A user."""

    name: str
    role: str
    disabled: bool
    service: bool = Field(description="Whether it is a program, which has tokens but no password.")
    created: str


class Users(BaseModel):
    """All users, by name."""

    items: list[UserInfo]


class UserRequest(BaseModel):
    """A user to add."""

    name: Text
    role: Role = "member"
    password: Text | None = Field(None, description="Null makes a service account.")


class UserChange(BaseModel):
    """What to change of a user; what is left out stays."""

    role: Role | None = None
    disabled: bool | None = None
    password: Text | None = None


def _not_kept(response: Response) -> None:
    response.headers["Cache-Control"] = "no-store"


router = APIRouter(tags=["Login"], route_class=StrictRoute, dependencies=[Depends(_not_kept)])


@router.post("/api/auth/login")
async def login(request: Request, body: Login) -> TokenMade:
    """Log in by password, for a token."""
    _check_private(request)
    site = site_of(request)
    user = await log_in(
        site.store,
        site.now(),
        body.username,
        body.password,
        address=address(request),
        network=network(request),
        request_id=request.state.request_id,
    )
    made = await make_token(site.store, site.now(), user, body.description or "created via cli")
    return await _made(request, made)


@router.post("/api/v1/auth/device")
async def start_device(request: Request, body: TokenRequest) -> DeviceStarted:
    """Begin a login that its user approves in a browser."""
    _check_private(request)
    site = site_of(request)
    turn = await take_turn(site.store, site.now(), f"device:{address(request)}", STARTS_PER_MINUTE)
    if turn.refused_for:
        raise TooMany("too many logins were begun; wait a minute", turn.refused_for)
    started = await devices.start(site.store, site.now(), body.description, _scopes(body), network(request))
    page = f"{base_url(request)}/device"
    return DeviceStarted(
        device_code=started.device_code,
        user_code=started.user_code,
        verification_uri=page,
        verification_uri_complete=f"{page}?user_code={started.user_code}",
        expires_in=devices.EXPIRES_IN,
        interval=devices.INTERVAL,
    )


@router.post("/api/v1/auth/device/token")
async def device_token(request: Request, body: DeviceCode) -> TokenMade:
    """Ask for the token of a login that was begun; until it is approved the refusal's `code` says why not."""
    site = site_of(request)
    found = await devices.poll(site.store, site.now(), body.device_code)
    if isinstance(found, str):
        raise Refusal(400, found, _WAITING[found])
    return await _made(request, found)


@router.get("/api/v1/tokens")
async def list_tokens(request: Request, actor: Someone, *, everyone: bool = False) -> Tokens:
    """List one's tokens; an admin those of all with `everyone`."""
    if everyone and not actor.may("admin"):
        raise Forbidden("everyone's tokens are for admins, with a token that has the scope `admin`")
    found = await all_tokens(site_of(request).store, None if everyone else actor.user_id)
    return Tokens(items=[_info(each) for each in found])


@router.post("/api/v1/tokens", status_code=201)
async def create_token(request: Request, actor: Someone, body: LastingTokenRequest) -> TokenMade:
    """Make a token; one made with a token has no more scopes than that, and ends no later."""
    site = site_of(request)
    owner = await find_user(site.store, actor.user_id)
    if owner is None:
        raise Conflict("this viewer is used without tokens")
    label = body.description or "no label"
    made = await make_token(
        site.store, site.now(), owner, label, _scopes(body), days=body.days, at_most=actor
    )
    return await _made(request, made, actor)


@router.delete("/api/v1/tokens/{token_id}")
async def delete_token(request: Request, actor: Someone, token_id: Name) -> TokenInfo:
    """Revoke a token, from its next request on; an admin those of all."""
    site = site_of(request)
    owner = None if actor.may("admin") else actor.user_id
    revoked = await revoke_token(site.store, site.now(), token_id, owner=owner)
    await note(request, "token.revoke", token_id, actor, owner=revoked.owner)
    return _info(revoked)


@router.get("/api/v1/users")
async def list_users(request: Request, actor: Admin) -> Users:
    """List all users, as an admin."""
    return Users(items=[_user(each) for each in await all_users(site_of(request).store)])


@router.post("/api/v1/users", status_code=201)
async def create_user(request: Request, actor: Admin, body: UserRequest) -> UserInfo:
    """Add a user, as an admin."""
    site = site_of(request)
    user = await add_user(site.store, site.now(), body.name, body.role, body.password)
    await note(request, "user.create", user.name, actor, role=user.role)
    return _user(user)


@router.patch("/api/v1/users/{name}")
async def patch_user(request: Request, actor: Admin, name: Name, body: UserChange) -> UserInfo:
    """Change a user, as an admin; counts from the user's next request on."""
    store = site_of(request).store
    if body.password is not None:
        await set_password(store, name, body.password)
        await note(request, "user.password", name.lower(), actor)
    user = await change_user(store, name, role=body.role, disabled=body.disabled)
    if body.role is not None or body.disabled is not None:
        await note(request, "user.change", user.name, actor, role=user.role, disabled=float(user.disabled))
    return _user(user)


async def _made(request: Request, made: NewToken, actor: Actor | None = None) -> TokenMade:
    token = made.token
    by = actor or Actor(token.owner, token.owner, "reader", frozenset())
    await note(request, "token.create", token.id, by, owner=token.owner, label=token.label)
    return TokenMade(
        token=made.text,
        token_id=token.id,
        user=token.owner,
        scopes=sorted(token.scopes),
        expires=token.expires,
    )


def _check_private(request: Request) -> None:
    if site_of(request).settings.mode == "local":
        raise Conflict("this viewer is used without login: it needs no token")


def _scopes(body: TokenRequest) -> frozenset[Scope]:
    return DEFAULT_SCOPES if body.scopes is None else check_scopes(body.scopes)


def _info(token: Token) -> TokenInfo:
    return TokenInfo.model_validate({**vars(token), "scopes": sorted(token.scopes)})


def _user(user: User) -> UserInfo:
    return UserInfo(**vars(user))
