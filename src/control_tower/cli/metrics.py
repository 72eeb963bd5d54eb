"""`ct metrics`: safety, usefulness and audit budgets of logs, with intervals."""

import json
from pathlib import Path
from typing import Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_section

DEFAULT_BUDGETS = ("1%", "5%", "10%")


def share(text: str) -> float:
    """A share, written as a number from 0 to 1 or in percent.

    Raises:
        click.BadParameter: It is none.
    """
    written = str(text).strip()
    try:
        number = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        raise click.BadParameter(f"{written!r} is no share: write 0.05 or 5%") from None
    if not 0 <= number <= 1:
        hint = f"; did you mean {written}%?" if 1 < number <= 100 and "%" not in written else ""
        raise click.BadParameter(f"{written!r} is not from 0 to 1{hint}")
    return number


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1)
@click.option("--honest", metavar="LOG", multiple=True, help="Take honest samples from here; with --attack.")
@click.option("--attack", metavar="LOG", multiple=True, help="Take attack samples from here; with --honest.")
@click.option("--trusted", metavar="LOG", help="Honest runs of the trusted model alone, for reference.")
@click.option("--monitor", "monitors", metavar="NAME", multiple=True, help="Whose scores decide; else all.")
@click.option(
    "--budget",
    "budgets",
    type=share,
    metavar="SHARE",
    multiple=True,
    default=DEFAULT_BUDGETS,
    show_default=True,
    help="Audits for each honest action or trajectory, as 0.05 or 5%; may be repeated.",
)
@click.option(
    "--level",
    type=click.Choice(["action", "trajectory"]),
    help="What audits are counted by; action unless the monitor judged only whole runs.",
)
@click.option(
    "--unscored",
    type=click.Choice(["spend", "ignore"]),
    default="spend",
    show_default=True,
    help="Whether honest actions without a score spend the budget before all others.",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    help="Draws for the intervals; 0 for none.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws.")
@click.option(
    "--cluster",
    type=click.Choice(["combination", "environment"]),
    default="combination",
    show_default=True,
    help="What is drawn: all epochs of a sample, or all samples of an environment.",
)
@click.option(
    "--by",
    type=click.Choice(["environment", "category", "main", "side"]),
    help="Also measure groups of samples.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write metrics.json, summary.md, CSV files and figures to this folder.",
)
@format_option("table", "json")
def metrics(
    logs: tuple[str, ...],
    honest: tuple[str, ...],
    attack: tuple[str, ...],
    trusted: str | None,
    monitors: tuple[str, ...],
    budgets: tuple[float, ...],
    out: Path | None,
    output_format: Format,
    **options: Any,
) -> None:
    """Measure safety and usefulness of control evaluations from their logs.

    Each LOG with both streams is a point of its own; --honest and --attack put one together from two logs.
    Thresholds are fitted on honest samples only, to spend each audit budget exactly.
    """
    from control_tower.client.sources import current_log
    from control_tower.conversion.current import original_of
    from control_tower.errors import UsageError
    from control_tower.logs.measured import Inputs, measure_logs
    from control_tower.metrics.document import document
    from control_tower.metrics.files import write_report
    from control_tower.metrics.report import Parameters
    from control_tower.metrics.summary import sections

    if not (logs or honest or attack):
        raise UsageError("name a log, or --honest and --attack logs")
    paths = [
        tuple(current_log(source) for source in dict.fromkeys(named)) for named in (logs, honest, attack)
    ]
    alone = current_log(trusted) if trusted else None
    read = [*paths[0], *paths[1], *paths[2], *([alone] if alone else [])]
    originals = {path: original_of(path) for path in read if original_of(path) != path}
    inputs = Inputs(*paths, trusted=alone, originals=originals)
    parameters = Parameters(budgets=tuple(sorted(set(budgets))), **options)
    report = measure_logs(inputs, monitors, parameters)
    written = write_report(report, out, _say) if out else []
    if output_format == "json":
        click.echo(json.dumps(document(report), indent=2))
    else:
        for section in sections(report):
            print_section(section.title, section.rows)
            for note in section.notes:
                click.echo(f"  {note}")
    for path in written:
        click.echo(f"written: {path}", err=True)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group(cls=Group, hidden=True)
def game_metrics() -> None:
    """Older name of `ct metrics`."""


game_metrics.add_command(metrics)
