"""`ct run`: play evaluations."""

from typing import Any

import click

from control_tower.cli.group import Group, older_name
from control_tower.cli.metrics import share
from control_tower.cli.output import Format, format_option
from control_tower.cli.run_options import (
    UPLOAD,
    control_eval_options,
    eval_options,
    refused,
    replay_options,
    whole_tags,
)


@click.group("run", cls=Group)
def run() -> None:
    """Run evaluations."""
    from control_tower.config import load_dotenv

    load_dotenv()  # before anything that the environment decides, such as how models are routed
    take_viewer_rates_if_configured()


def take_viewer_rates_if_configured() -> None:
    """Have prices read from the viewer where CONTROL_TOWER_PRICING says so."""
    from control_tower.config import get

    if get("pricing") == "api":
        from control_tower.client.rates import viewer_rates
        from control_tower.models.rate_sources import take_viewer_rates

        take_viewer_rates(viewer_rates)


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


run.add_command(older_name(run_control_eval), "sabotage-eval")


@run.command("replay")
@click.argument("source", metavar="LOG")
@replay_options
@format_option("table", "json")
@click.pass_context
def run_replay(ctx: click.Context, source: str, check: bool, output_format: Format, **options: Any) -> int:
    """Play the recorded calls of a log again in fresh sandboxes, score them, and compare with the log.

    The same as `ct run eval --policy replay --from-run LOG`, scored as the log was. -e, -t, -s and --limit
    choose among its samples.

    \b
      ct run replay logs/RUN.eval --check
      ct run replay logs/RUN.eval --sandbox replay --protocol block-every-other
    """
    from control_tower.cli.run_replay import run_replay_command

    default = click.core.ParameterSource.DEFAULT
    given = {name for name in options if ctx.get_parameter_source(name) != default}
    return run_replay_command(source, options, given, output_format, check=check)


@run.command("audit")
@click.argument("source")
@click.option("--monitor", metavar="NAME", help="Whose scores decide what is audited.")
@click.option("--budget", type=share, metavar="SHARE", help="Audits for each honest action, as 0.05 or 5%.")
@click.option("--live", is_flag=True, help="Count the audits again that the protocol made while it ran.")
@click.option("--output", metavar="FILE", help="The copy.  [default: SOURCE's name with .audited.eval]")
@format_option("table", "json")
def run_audit(
    source: str,
    monitor: str | None,
    budget: float | None,
    live: bool,
    output: str | None,
    output_format: Format,
) -> None:
    """Audit a finished log by a monitor's scores, into a copy; the log stays as it is.

    From which score on actions are audited is fitted on the honest samples, so that the budget is spent
    on them exactly. Attack samples are then caught where an audit comes before their harm.

    \b
      ct run audit logs/RUN.eval --monitor rules --budget 5%
    """
    from control_tower.cli.run_audit import run_audit_command

    run_audit_command(source, monitor, budget, output, output_format, live=live)


@run.command("monitor")
@click.argument("source", metavar="LOG")
@click.option(
    "-m",
    "--monitors",
    metavar="YAML",
    multiple=True,
    help="Who judges, such as '[simple, {prompt: strong}]'.",
)
@click.option("--action-monitor", metavar="NAME", help="The same as -m '[NAME]' --kind action.")
@click.option(
    "--kind",
    type=click.Choice(["action", "trajectory"]),
    default="action",
    show_default=True,
    help="Whether each action is judged, or each run as a whole.",
)
@click.option(
    "--model-role",
    "model_roles",
    metavar="ROLE=MODEL",
    multiple=True,
    help="The model of a role (repeatable).",
)
@click.option("-o", "--save-dir", metavar="DIR", help="Where the copy goes.  [default: data/monitoring]")
@click.option("--estimate", "estimate_only", is_flag=True, help="Say what it would cost; no model is asked.")
@click.option("--run-name", metavar="NAME", help="Name of the copy's run.  [default: that of the log]")
@click.option(
    "--tag",
    "tags",
    callback=whole_tags,
    multiple=True,
    metavar="TAG",
    help="A tag of it, instead of the log's. Repeatable.",
)
@UPLOAD
@refused("--hawk", "--hawk-arg")
@format_option("table", "json")
def run_monitor(output_format: Format, **options: Any) -> None:
    """Have monitors judge a finished log; their scores go into a copy, the log stays as it is.

    Verdicts that were paid for are kept: after an interruption the same command asks for the others only.

    \b
      ct run monitor logs/RUN.eval -m '[simple, {prompt: strong, samples: 2}]' --estimate
      ct run monitor logs/RUN.eval -m '[quick]' --kind trajectory
    """
    from control_tower.cli.run_monitor import run_monitor_command

    run_monitor_command(output_format=output_format, **options)
