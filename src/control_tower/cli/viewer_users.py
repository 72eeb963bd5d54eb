"""`ct viewer user` and `ct viewer token`: whom the viewer of this machine lets in."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from control_tower.agent_runs.actor import SCOPES, Role
from control_tower.cli.group import Group
from control_tower.cli.login import read_password
from control_tower.cli.output import Format, format_option, print_rows
from control_tower.cli.tokens import COLUMNS, print_made

if TYPE_CHECKING:
    from control_tower.agent_runs.site import Site

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

_ROLES = click.Choice(list(SCOPES))


def data_option(command: C) -> C:
    """The option `--data` of a command that works on the viewer's own store."""
    return click.option(
        "--data", metavar="DIR", help="Folder of the viewer.  [default: where `ct viewer serve` keeps runs]"
    )(command)


@click.group(cls=Group)
def user() -> None:
    """Say who may use this viewer.

    Works on the viewer's store itself, so it is for who operates it; it may be serving meanwhile.
    """


@user.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default="member", show_default=True, help="What the user may do.")
@click.option("--service", is_flag=True, help="A program: it has tokens, but no password.")
@data_option
def add(name: str, role: Role, data: str | None, *, service: bool) -> None:
    """Add a user; the password is asked for, or read from stdin."""
    from control_tower.agent_runs.accounts.users import add_user

    password = None if service else read_password(f"Password for {name}", twice=True)

    async def work(site: "Site") -> None:
        made = await add_user(site.store, site.now(), name, role, password)
        await _note(site, "user.create", made.name, role=role)

    _with_site(data, work)
    click.echo(f"added {name} as {role}", err=True)


@user.command("list")
@data_option
@format_option()
def list_users(data: str | None, output_format: Format) -> None:
    """List the users."""
    from control_tower.agent_runs.accounts.users import all_users

    print_rows([vars(each) for each in _with_site(data, lambda site: all_users(site.store))], output_format)


@user.command()
@click.argument("name")
@click.argument("role", type=_ROLES)
@data_option
def role(name: str, role: Role, data: str | None) -> None:
    """Give a user another role, from the next request on; its tokens do no more than that either."""
    _change(name, data, role=role)
    click.echo(f"{name} is now {role}", err=True)


@user.command()
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let the user in again.")
@data_option
def disable(name: str, data: str | None, *, undo: bool) -> None:
    """Keep a user out from the next request on, with all tokens and sessions; what they uploaded stays."""
    _change(name, data, disabled=not undo)
    click.echo(f"{name} is {'let in again' if undo else 'kept out'}", err=True)


@user.command()
@click.argument("name")
@data_option
def password(name: str, data: str | None) -> None:
    """Give a user a new password, asked for or read from stdin; this ends the user's sessions."""
    from control_tower.agent_runs.accounts.users import set_password

    new = read_password(f"New password for {name}", twice=True)

    async def work(site: "Site") -> None:
        await set_password(site.store, name, new)
        await _note(site, "user.password", name.lower())

    _with_site(data, work)
    click.echo(f"{name} has a new password", err=True)


@click.group(cls=Group)
def token() -> None:
    """Make and revoke tokens of this viewer's users.

    Works on the viewer's store itself, so it is for who operates it; it may be serving meanwhile.
    """


@token.command()
@click.argument("owner")
@click.option("--description", metavar="TEXT", required=True, help="What it is for.")
@click.option("--scope", "scopes", multiple=True, help="What it may do; repeat it.  [default: as `ct login`]")
@click.option(
    "--days",
    type=float,
    help="How long it is valid, at most 365; 0 is for ever, for services.  [default: 90]",
)
@data_option
@format_option("table", "json")
def create(
    owner: str,
    description: str,
    scopes: tuple[str, ...],
    days: float | None,
    data: str | None,
    output_format: Format,
) -> None:
    """Make a token of a user, and print it this once."""
    from control_tower.agent_runs.accounts.tokens import DEFAULT_SCOPES, NewToken, check_scopes, make_token
    from control_tower.agent_runs.accounts.users import find_user
    from control_tower.agent_runs.errors import NotFound

    async def work(site: "Site") -> NewToken:
        found = await find_user(site.store, owner)
        if found is None:
            raise NotFound(f"there is no user {owner!r}: ct viewer user add")
        asked = check_scopes(scopes) if scopes else DEFAULT_SCOPES
        made = await make_token(site.store, site.now(), found, description, asked, days=days)
        await _note(site, "token.create", made.token.id, owner=found.name, label=made.token.label)
        return made

    made = _with_site(data, work)
    token = made.token
    print_made(
        {
            "token": made.text,
            "token_id": token.id,
            "user": token.owner,
            "scopes": sorted(token.scopes),
            "expires": token.expires,
        },
        output_format,
    )


@token.command("list")
@click.option("--user", "owner", metavar="NAME", help="Only those of a user.")
@data_option
@format_option()
def list_tokens(owner: str | None, data: str | None, output_format: Format) -> None:
    """List tokens; their secrets are nowhere kept."""
    from control_tower.agent_runs.accounts.tokens import all_tokens

    found = _with_site(data, lambda site: all_tokens(site.store, owner and owner.lower()))
    rows = [{**vars(each), "scopes": sorted(each.scopes)} for each in found]
    print_rows(rows, output_format, ("owner", *COLUMNS))


@token.command()
@click.argument("token_id")
@data_option
def revoke(token_id: str, data: str | None) -> None:
    """Make a token worthless from its next use on."""
    from control_tower.agent_runs.accounts.tokens import revoke_token

    async def work(site: "Site") -> None:
        revoked = await revoke_token(site.store, site.now(), token_id)
        await _note(site, "token.revoke", token_id, owner=revoked.owner)

    _with_site(data, work)
    click.echo(f"revoked {token_id}", err=True)


def _change(name: str, data: str | None, *, role: Role | None = None, disabled: bool | None = None) -> None:
    from control_tower.agent_runs.accounts.users import change_user

    async def work(site: "Site") -> None:
        user = await change_user(site.store, name, role=role, disabled=disabled)
        await _note(site, "user.change", user.name, role=user.role, disabled=float(user.disabled))

    _with_site(data, work)


async def _note(site: "Site", action: str, target: str, **details: str | float | None) -> None:
    """What an operator did is noted with no user: it was done at the store itself."""
    from control_tower.agent_runs.audit import Event, record

    await record(site.store, site.now(), Event(action, target, None, details=details))


def _with_site(data: str | None, work: "Callable[[Site], Awaitable[T]]") -> T:
    from control_tower.agent_runs.site import SiteSettings, open_site

    async def run() -> T:
        async with open_site(SiteSettings.from_environment("private", data)) as site:
            return await work(site)

    return asyncio.run(run())
