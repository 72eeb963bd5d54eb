"""`ct run`: play evaluations."""

from typing import Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option
from control_tower.cli.run_options import control_eval_options, eval_options


@click.group("run", cls=Group)
def run() -> None:
    """Run evaluations."""


@run.command("eval")
@eval_options
@format_option("table", "json")
def run_eval(output_format: Format, **options: Any) -> int:
    """Play one policy against one protocol over a selection of tasks.

    The log goes to logs/ and a table of results to the terminal. With a demo policy or model this needs
    no key, no Docker and no network:

    \b
      ct run eval --policy scripted -e demo/web_scraping --all --epochs 4
    """
    from control_tower.cli.run_eval import run_command

    return run_command("eval", options, output_format)


@run.command("control-eval")
@control_eval_options
@format_option("table", "json")
def run_control_eval(output_format: Format, **options: Any) -> int:
    """Play an honest and an attack policy against one protocol, both streams in one log.

    Honest samples have main tasks only; attack samples also have a side task. They are played in turn
    over the same main tasks. With a demo policy or model this needs no key, no Docker and no network:

    \b
      ct run control-eval --honest-policy scripted --attack-policy scripted -e demo/web_scraping --all
    """
    from control_tower.cli.run_eval import run_command

    return run_command("control_eval", options, output_format)
