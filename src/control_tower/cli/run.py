"""`ct run`: play evaluations."""

from typing import Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option
from control_tower.cli.run_options import run_options


@click.group("run", cls=Group)
def run() -> None:
    """Run evaluations."""


@run.command("eval")
@run_options
@format_option("table", "json")
def run_eval(output_format: Format, **options: Any) -> int:
    """Play one policy against one protocol over a selection of tasks.

    The log goes to logs/ and a table of results to the terminal. With a demo policy or model this needs
    no key, no Docker and no network:

    \b
      ct run eval --policy scripted -e demo/web_scraping --all --epochs 4
    """
    from control_tower.cli.run_eval import run_eval_command

    return run_eval_command(options, output_format)
