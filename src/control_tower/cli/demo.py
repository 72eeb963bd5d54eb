"""`ct demo`: a whole evaluation of the built-in setting, without keys, Docker or network."""

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
    default=4,
    show_default=True,
    metavar="N",
    help="How many of the four prepared variants of each sample are played.",
)
@click.option("--log-dir", metavar="FOLDER", help="Where the log goes.  [default: logs]")
@format_option("table", "json")
def demo(sandbox: str, epochs: int, log_dir: str | None, output_format: Format) -> int:
    """Run a whole evaluation: every task of the demo setting, honest and attacked, scored.

    An agent works as root in an isolated sandbox; prepared trajectories stand in for the model, so
    every run gives the same scores.
    """
    from control_tower.cli.run_eval import play
    from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection

    config = RunConfig(
        task_selection=TaskSelection(environments=("demo/web_scraping",), expand_all=True),
        policy=FunctionRef(name="scripted"),
        sandbox=SandboxConfig(sandbox=sandbox),
        eval_args={"epochs": epochs},
    )
    return play(config, log_dir, output_format)
