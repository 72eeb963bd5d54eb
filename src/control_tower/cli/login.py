"""`ct login`, `ct logout`, `ct whoami`: being known to a viewer."""

import os
import sys
from typing import TYPE_CHECKING

import click

from control_tower.cli.output import Format, format_option, print_record
from control_tower.errors import UsageError

if TYPE_CHECKING:
    from control_tower.client.login import DeviceLogin
    from control_tower.client.tokens import KeptToken

URL = click.option("--url", metavar="URL", help="The viewer.  [default: the configured one]")


@click.command()
@click.argument("address", required=False, metavar="[URL]")
@click.option("--url", metavar="URL", help="The viewer, instead of the argument.")
@click.option("-u", "--user", help="Log in by password as this user; it is asked for, or read from stdin.")
@click.option("--token-stdin", is_flag=True, help="Read a token from stdin that was made in the viewer.")
@click.option("--device", is_flag=True, help="Open no browser here; show where to approve instead.")
@click.option(
    "--description", metavar="TEXT", help="What the token is called.  [default: the machine's name]"
)
@click.option(
    "--insecure", is_flag=True, help="Allow http to another machine; tokens can then be read on the way."
)
def login(
    address: str | None,
    url: str | None,
    user: str | None,
    *,
    token_stdin: bool,
    device: bool,
    description: str | None,
    insecure: bool,
) -> None:
    """Log in to a viewer, and keep its token.

    Without options the login is approved in a browser: one is opened here where there is a screen, else the
    address and a code are shown, which may be entered on any machine. The viewer becomes the one that
    commands use, unless CONTROL_TOWER_API_BASE_URL names another.
    """
    import asyncio

    from control_tower.client import login as logins
    from control_tower.client.tokens import default_url

    if sum((user is not None, token_stdin, device)) > 1:
        raise UsageError("-u, --token-stdin and --device exclude each other")
    if address and url:
        raise UsageError("the viewer is named twice: as an argument, and by --url")
    viewer = address or url or default_url()
    if viewer is None:
        raise UsageError("name the viewer: ct login https://host")
    if token_stdin:
        work = logins.by_token(viewer, sys.stdin.read(), insecure=insecure)
    elif user is not None:
        logins.check_address(viewer, insecure=insecure)
        work = logins.by_password(
            viewer, user, read_password("Password"), description=description or _here(), insecure=insecure
        )
    else:
        show = _show if device or not _has_browser() else _open
        work = logins.by_device(viewer, show, description=description or _here(), insecure=insecure)
    _say(asyncio.run(work))


@click.command()
@URL
@click.option("--revoke", is_flag=True, help="Also make the token worthless, wherever else it is used.")
def logout(url: str | None, *, revoke: bool) -> None:
    """Forget the token of a viewer."""
    import asyncio

    from control_tower.client.login import revoke_kept
    from control_tower.client.origins import origin
    from control_tower.client.tokens import default_url, forget_token, read_tokens

    viewer = url or default_url()
    if viewer is None or origin(viewer) not in read_tokens().hosts:
        click.echo(f"not logged in{f' to {viewer}' if viewer else ''}", err=True)
        return
    if revoke:
        asyncio.run(revoke_kept(viewer))
    forget_token(viewer)
    click.echo(f"logged out of {viewer}{', the token is revoked' if revoke else ''}", err=True)


@click.command()
@URL
@format_option("table", "json")
def whoami(url: str | None, output_format: Format) -> None:
    """Say who the viewer takes you for, and what the token may do."""
    from control_tower.cli.tokens import call

    viewer, who = call("GET", "/api/v1/whoami", url)
    shown = ("name", "role", "scopes", "token_id", "expires")
    print_record({"viewer": viewer, **{key: who.get(key) for key in shown}}, output_format)


def read_password(prompt: str, *, twice: bool = False) -> str:
    """A password: asked for at a terminal, else the first line of stdin.

    Args:
        prompt: What is asked.
        twice: Whether to ask again, to be sure.
    """
    if sys.stdin.isatty():
        return click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("no password: type it at the prompt, or write it to stdin")
    return password


def _here() -> str:
    import platform

    return f"ct login on {platform.node() or 'a machine'}"


def _has_browser() -> bool:
    """Whether the user likely sits before this machine."""
    if os.environ.get("SSH_CONNECTION") or not sys.stderr.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(found: "DeviceLogin") -> None:
    import webbrowser

    if webbrowser.open(found.page_with_code):
        click.echo(
            f"Approve the code {found.user_code} in the browser, or at {found.page_with_code}", err=True
        )
    else:
        _show(found)


def _show(found: "DeviceLogin") -> None:
    click.echo(f"Open {found.page} in any browser and enter the code {found.user_code}", err=True)
    click.echo(f"or open {found.page_with_code}", err=True)


def _say(kept: "KeptToken") -> None:
    from control_tower.client.origins import origin
    from control_tower.config import get

    who = f" as {kept.user}" if kept.user else ""
    scopes = f" ({', '.join(kept.scopes)})" if kept.scopes else ""
    ends = f", until {kept.expires[:10]}" if kept.expires else ""
    click.echo(f"logged in to {kept.url}{who}{scopes}{ends}", err=True)
    configured = get("api_base_url")
    if configured and origin(configured) != origin(kept.url):
        click.echo(
            f"Warning: CONTROL_TOWER_API_BASE_URL names {configured}, which commands still use", err=True
        )
