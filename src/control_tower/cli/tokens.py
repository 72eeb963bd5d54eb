"""`ct tokens`: one's own tokens for a viewer."""

from typing import Any, cast

import click

from control_tower.cli.group import Group
from control_tower.cli.login import URL
from control_tower.cli.output import Format, format_option, print_record, print_rows

COLUMNS = ("id", "label", "scopes", "created", "expires", "last_used", "revoked")


@click.group(cls=Group)
def tokens() -> None:
    """List, make and revoke tokens for the viewer."""


@tokens.command("list")
@URL
@click.option("--everyone", is_flag=True, help="Those of all users, as an admin.")
@format_option()
def list_(url: str | None, output_format: Format, *, everyone: bool) -> None:
    """List tokens; their secrets are nowhere kept."""
    path = "/api/v1/tokens" + ("?everyone=true" if everyone else "")
    columns = ("owner", *COLUMNS) if everyone else COLUMNS
    print_rows(call("GET", path, url)[1]["items"], output_format, columns)


@tokens.command()
@URL
@click.option("--description", metavar="TEXT", required=True, help="What it is for.")
@click.option("--scope", "scopes", multiple=True, help="What it may do; repeat it.  [default: as `ct login`]")
@click.option("--days", type=float, help="How long it is valid, at most 365.  [default: 90]")
@format_option("table", "json")
def create(
    url: str | None, description: str, scopes: tuple[str, ...], days: float | None, output_format: Format
) -> None:
    """Make a token, and print it this once.

    It may do no more than the token it is made with, and ends no later; the viewer's page Tokens
    makes stronger ones.
    """
    body: dict[str, Any] = {"description": description, "scopes": list(scopes) or None, "days": days}
    made = call("POST", "/api/v1/tokens", url, body)[1]
    print_made(made, output_format)


@tokens.command()
@click.argument("token_id")
@URL
def revoke(token_id: str, url: str | None) -> None:
    """Make a token worthless from its next use on."""
    from urllib.parse import quote

    call("DELETE", f"/api/v1/tokens/{quote(token_id, safe='')}", url)
    click.echo(f"revoked {token_id}", err=True)


def print_made(made: dict[str, Any], output_format: Format) -> None:
    """Print a new token: for a person the token alone on stdout, what it is on stderr."""
    if output_format == "json":
        print_record(made, output_format)
        return
    ends = f"until {made['expires'][:10]}" if made["expires"] else "for ever"
    click.echo(f"{made['token_id']} of {made['user']}: {', '.join(made['scopes'])}, {ends}", err=True)
    click.echo(made["token"])


def call(method: str, path: str, url: str | None, body: object = None) -> tuple[str, dict[str, Any]]:
    """One call of a viewer's API.

    Returns:
        Which viewer it is, and what it answers.
    """
    import asyncio

    from control_tower.client.session import open_viewer

    async def answer() -> tuple[str, dict[str, Any]]:
        async with open_viewer(url) as viewer:
            found = await viewer.call(method, path, json=body, again=method == "GET")
            where = "the data folder of this machine" if viewer.in_process else viewer.url
            return where, cast("dict[str, Any]", found.json())

    return asyncio.run(answer())
