"""`ct demo`: a whole evaluation of the built-in setting, without keys, Docker or network."""

from pathlib import Path
from typing import Any

import click

from control_tower.cli.output import Format, format_option

SANDBOXES = ("auto", "bwrap", "docker", "process")


@click.command()
@click.option(
    "--sandbox", type=click.Choice(SANDBOXES), default="auto", show_default=True, help="Where it runs."
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 4),
    default=3,
    show_default=True,
    metavar="N",
    help="How many of the four prepared variants of each sample are played.",
)
@click.option("--log-dir", metavar="FOLDER", default="logs", show_default=True, help="Where logs go.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="demo-report",
    show_default=True,
    help="Where tables and figures go.",
)
@format_option("table", "json")
def demo(output_format: Format, **settings: Any) -> int:
    """Run a whole evaluation: every task of the demo setting, honest and attacked, scored and measured.

    An agent works as root in an isolated sandbox; prepared trajectories stand in for the model, so every
    run gives the same scores. A monitor watches, a second protocol defers to a trusted model, a second
    monitor judges the finished log, metrics say what an audit budget buys, and a replay repeats the log.
    """
    from control_tower.cli.demo_story import Settings, run_demo

    return run_demo(Settings(**settings), output_format)
