"""`ct envs`: environments."""

import click

from control_tower.cli.group import Group
from control_tower.cli.list import list_envs
from control_tower.cli.settings import validate


@click.group(cls=Group)
def envs() -> None:
    """List and check environments."""


envs.add_command(list_envs, "list")
envs.add_command(validate, "validate")
