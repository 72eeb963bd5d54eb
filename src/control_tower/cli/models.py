"""`ct models`: short names of models."""

import click

from control_tower.cli.group import Group
from control_tower.cli.list import list_models


@click.group(cls=Group)
def models() -> None:
    """List model aliases."""


models.add_command(list_models, "list")
