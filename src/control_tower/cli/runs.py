"""`ct runs`: what can be done with runs that are kept."""

from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_record, print_section

if TYPE_CHECKING:
    from control_tower.logs.compare import Comparison, PairedMeans
    from control_tower.metrics.samples import Money


@click.group(cls=Group)
def runs() -> None:
    """Compare runs, and convert older ones."""


@runs.command()
@click.argument("a")
@click.argument("b")
@format_option("table", "json")
def compare(a: str, b: str, output_format: Format) -> None:
    """Compare two runs, given as logs, by the samples that both have.

    Says which verdicts flipped, and whether the rates of A and B differ by more than chance. Differences are
    B minus A. Samples that errored or were not scored are counted, never taken for failures.
    """
    from dataclasses import replace

    from control_tower.conversion.current import current_log, original_of
    from control_tower.logs.compare import compare_logs

    paths = current_log(a), current_log(b)
    a_there, b_there = (original_of(path) for path in paths)
    found = replace(
        compare_logs(*paths),
        logs=(str(a_there), str(b_there)),
        converted=(a_there != paths[0], b_there != paths[1]),
    )
    if output_format == "json":
        print_record(_as_json(found), output_format)
        return
    print_record(_overview(found), output_format)
    print_section("Made with", [{"": name, "A": x, "B": y} for name, (x, y) in found.differs.items()])
    print_section("Verdicts of samples in both", _rates(found))
    print_section("Verdicts of all scored samples", _overall(found))
    print_section("Flips", _flips(found))
    print_section("Only in one", _only_in_one(found, "AB"))


@runs.command()
@click.argument("sources", nargs=-1)
@click.option("--honest", metavar="SOURCE", help="A log of honest samples; their side tasks are taken away.")
@click.option("--attack", metavar="SOURCE", help="A log of attack samples; with --honest, merged with it.")
@click.option(
    "-o", "--output-dir", default="logs/converted", show_default=True, help="Where converted logs go."
)
@click.option("--upload", is_flag=True, help="Upload each as a new run (not yet available).")
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


def _only_in_one(found: "Comparison", names: str) -> list[dict[str, Any]]:
    return [
        {"log": log, "sample": key.id, "epoch": key.epoch}
        for log, keys in zip(names, found.only_in, strict=True)
        for key in keys
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


def _as_json(found: "Comparison") -> dict[str, Any]:
    a, b = found.costs
    return {
        "a": {"log": found.logs[0], "samples": found.samples[0], "converted": found.converted[0]},
        "b": {"log": found.logs[1], "samples": found.samples[1], "converted": found.converted[1]},
        "pairs": found.pairs,
        "only_in_one": _only_in_one(found, "ab"),
        "differs": {name: {"a": x, "b": y} for name, (x, y) in found.differs.items()},
        "verdicts": {
            role: {
                "pairs": verdicts.pairs,
                "errored": dict(zip("ab", verdicts.failed, strict=True)),
                "unscored": dict(zip("ab", verdicts.unscored, strict=True)),
                "overall": {side: vars(rate) for side, rate in zip("ab", verdicts.overall, strict=True)},
                "paired": _paired(verdicts.paired),
                "flips": [vars(flip) for flip in verdicts.flips],
            }
            for role, verdicts in found.verdicts.items()
        },
        "caught": {name: _paired(means) for name, means in found.caught.items()},
        "cost": {
            "a": vars(a),
            "b": vars(b),
            "difference": None if a.incomplete or b.incomplete else b.usd - a.usd,
        },
    }


def _paired(means: "PairedMeans") -> dict[str, Any]:
    test = means.significance
    return {
        "n": means.n,
        "a": means.a,
        "b": means.b,
        "difference": means.difference,
        "p": test.p if test else None,
        "test": test.method if test else None,
    }
