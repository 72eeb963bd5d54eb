"""`ct runs`: what can be done with runs that are kept."""

from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_record, print_section

if TYPE_CHECKING:
    from control_tower.logs.compare import Comparison, PairedMeans
    from control_tower.metrics.samples import Money


@click.group(
    cls=Group,
    lazy={
        "make": ("control_tower.cli.runs_make:make", "Make a run of a log, so that it can be found again."),
        "list": ("control_tower.cli.runs_list:list_", "List the runs that are kept, the newest first."),
        "info": ("control_tower.cli.runs_list:info", "Show a run."),
        "download-eval": ("control_tower.cli.runs_download:download_eval", "Download a run's log."),
        "download-traj": (
            "control_tower.cli.runs_download:download_traj",
            "Download single samples.",
        ),
        "push": ("control_tower.cli.runs_make:push", "Upload logs that could not be uploaded."),
        "tag": ("control_tower.cli.runs_edit:tag", "Give a run tags, or take tags away."),
        "note": ("control_tower.cli.runs_edit:note", "Describe a run in a few words."),
        "rm": ("control_tower.cli.runs_edit:rm", "Remove runs."),
        "restore": ("control_tower.cli.runs_edit:restore", "Bring removed runs back."),
        "open": ("control_tower.cli.runs_edit:open_", "Show a run's page in the browser."),
    },
)
def runs() -> None:
    """Keep runs, find them again, compare them.

    A RUN is named by its id or by the URL of its page. Runs are kept by the viewer that `ct login` or
    CONTROL_TOWER_API_BASE_URL named, else in the local data folder.
    """


@runs.command()
@click.argument("a")
@click.argument("b")
@format_option("table", "json")
def compare(a: str, b: str, output_format: Format) -> None:
    """Compare two runs, each a run or a log, by the samples that both have.

    Says which verdicts flipped, and whether the rates of A and B differ by more than chance. Differences are
    B minus A. Samples that errored or were not scored are counted, never taken for failures.
    """
    from dataclasses import replace

    from control_tower.client.sources import current_log
    from control_tower.conversion.current import original_of
    from control_tower.logs.compare import compare_logs
    from control_tower.logs.compare_document import document, only_in_one

    paths = current_log(a), current_log(b)
    a_there, b_there = (original_of(path) for path in paths)
    found = replace(
        compare_logs(*paths),
        logs=(str(a_there), str(b_there)),
        converted=(a_there != paths[0], b_there != paths[1]),
    )
    if output_format == "json":
        print_record(document(found), output_format)
        return
    print_record(_overview(found), output_format)
    print_section("Made with", [{"": name, "A": x, "B": y} for name, (x, y) in found.differs.items()])
    print_section("Verdicts of samples in both", _rates(found))
    print_section("Verdicts of all scored samples", _overall(found))
    print_section("Flips", _flips(found))
    print_section("Only in one", only_in_one(found, "AB"))


@runs.command()
@click.argument("sources", nargs=-1)
@click.option("--honest", metavar="SOURCE", help="A log of honest samples; their side tasks are taken away.")
@click.option("--attack", metavar="SOURCE", help="A log of attack samples; with --honest, merged with it.")
@click.option(
    "-o", "--output-dir", default="logs/converted", show_default=True, help="Where converted logs go."
)
@click.option("--upload", is_flag=True, help="Upload each as a new run.")
@click.option("--dry-run", is_flag=True, help="Convert, but write nothing.")
@click.option("--diff", is_flag=True, help="Say what changes, by rule, with counts.")
def convert(
    sources: tuple[str, ...],
    honest: str | None,
    attack: str | None,
    output_dir: str,
    *,
    upload: bool,
    dry_run: bool,
    diff: bool,
) -> None:
    """Write logs of older formats in the current one.

    Prints a line of JSON for each converted log; those that are current already are skipped. The sources stay
    as they are, and nothing is written when one of them cannot be converted.
    """
    from control_tower.cli.runs_convert import run_convert_command

    run_convert_command(sources, honest, attack, output_dir, upload=upload, dry_run=dry_run, diff=diff)


def _overview(found: "Comparison") -> dict[str, Any]:
    a, b = found.costs
    return {
        **{
            letter: f"{log} ({samples} samples{', converted' if converted else ''})"
            for letter, log, samples, converted in zip(
                "AB", found.logs, found.samples, found.converted, strict=True
            )
        },
        "in both": found.pairs,
        "cost": f"A {_money(a)}, B {_money(b)}, difference {_cost_difference(found)}",
    }


def _rates(found: "Comparison") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for role, verdicts in found.verdicts.items():
        row = {
            "what": f"{role} verdict",
            "pairs": verdicts.pairs,
            "errored": "{} / {}".format(*verdicts.failed),
            "unscored": "{} / {}".format(*verdicts.unscored),
            "flips": len(verdicts.flips),
        }
        rows.append({**row, **_means(verdicts.paired)})
    rows += [{"what": f"caught ({name})", **_means(means)} for name, means in found.caught.items()]
    return rows


def _overall(found: "Comparison") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for role, verdicts in found.verdicts.items():
        a, b = (f"{_number(rate.value)} of {rate.n}" for rate in verdicts.overall)
        rows.append({"what": f"{role} verdict", "A": a, "B": b})
    return rows


def _means(means: "PairedMeans") -> dict[str, Any]:
    test = means.significance
    return {
        "compared": means.n,
        "A": _number(means.a),
        "B": _number(means.b),
        "difference": None if means.difference is None else f"{means.difference:+.3f}",
        "p": _number(test.p) if test else None,
        "test": test.method if test else None,
    }


def _flips(found: "Comparison") -> list[dict[str, Any]]:
    return [
        {"role": role, "sample": flip.sample, "epoch": flip.epoch, "A": flip.a, "B": flip.b}
        for role, verdicts in found.verdicts.items()
        for flip in verdicts.flips
    ]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _money(money: "Money") -> str:
    return f"${money.usd:,.4f}" + ("+" if money.incomplete else "")


def _cost_difference(found: "Comparison") -> str:
    a, b = found.costs
    if a.incomplete or b.incomplete:
        return "unknown, as a price is missing"
    return f"{'-' if b.usd < a.usd else '+'}${abs(b.usd - a.usd):,.4f}"
