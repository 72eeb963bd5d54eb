"""`ct timing`: where the time, the tokens and the money of a log went."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.output import Format, format_option, print_record, print_section

if TYPE_CHECKING:
    from control_tower.logs.timing import LogTime


@click.command()
@click.argument("source", metavar="LOG")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many of the slowest samples and calls to show.",
)
@format_option("table", "json")
def timing(source: str, top: int, output_format: Format) -> None:
    """Say where the time, tokens and money of a log went.

    Each moment of a sample counts for one phase, so calls that ran at once are not counted twice. Samples
    that ran at once are added up: their sum may be longer than the run.
    """
    from control_tower.client.sources import local_copy
    from control_tower.logs.timing import log_time

    found = log_time(local_copy(source), top)
    if output_format == "json":
        print_record(_as_json(found, top), output_format)
        return
    print_record(_overview(found), output_format)
    print_section("Time by phase, in seconds", _phases(found))
    print_section("Tokens and cost by role", _roles(found))
    print_section("Slowest samples, in seconds", [_sample(sample) for sample in found.slowest_samples(top)])
    print_section("Slowest calls, in seconds", [_rounded(vars(call)) for call in found.slowest_calls])


def _overview(found: "LogTime") -> dict[str, Any]:
    from control_tower.logs.costs import total

    timed = f"{len(found.samples)} samples, {found.seconds:.2f} s together"
    record: dict[str, Any] = {
        "log": found.log,
        "timed": timed if found.clock is None else f"{timed}, {found.clock:.2f} s by the clock",
        "cost": str(total(found.costs.recorded)),
    }
    if found.untimed:
        record["without times"] = found.untimed
    if retried := sum(sample.retried for sample in found.samples):
        record["not in it"] = f"{retried} attempts that were retried"
    if found.damage:
        record["damage"] = f"{found.damage} places could not be read"
    return record


def _phases(found: "LogTime") -> list[dict[str, Any]]:
    samples = len(found.samples)
    return [
        {
            "phase": phase,
            "seconds": f"{seconds:.2f}",
            "share": f"{100 * seconds / found.seconds:.1f} %",
            "per_sample": f"{seconds / samples:.2f}",
        }
        for phase, seconds in found.phases.items()
    ]


def _roles(found: "LogTime") -> list[dict[str, Any]]:
    from control_tower.logs.costs import by_role

    costs = by_role(found.costs.recorded)
    rows: list[dict[str, Any]] = []
    for role in dict.fromkeys([*found.tokens, *costs]):
        tokens = found.tokens.get(role)
        row: dict[str, Any] = {"role": role, "cost": str(costs[role]) if role in costs else ""}
        if tokens:
            hit_rate = "" if tokens.hit_rate is None else f"{100 * tokens.hit_rate:.1f} %"
            row |= {**vars(tokens), "hit_rate": hit_rate}
        rows.append(row)
    return rows


def _sample(sample: Any) -> dict[str, Any]:
    return {"sample": sample.sample, "seconds": f"{sample.seconds:.2f}", "phases": _rounded(sample.phases)}


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: f"{value:.2f}" if isinstance(value, float) else value for key, value in values.items()}


def _as_json(found: "LogTime", top: int) -> dict[str, Any]:
    from control_tower.logs.costs import by_role, total

    return {
        "log": found.log,
        "clock_seconds": found.clock,
        "sample_seconds": found.seconds,
        "phases": found.phases,
        "tokens": {
            role: {**vars(tokens), "hit_rate": tokens.hit_rate} for role, tokens in found.tokens.items()
        },
        "cost": total(found.costs.recorded).as_json(),
        "cost_by_role": {role: cost.as_json() for role, cost in by_role(found.costs.recorded).items()},
        "samples": [vars(sample) for sample in found.samples],
        "slowest_samples": [sample.sample for sample in found.slowest_samples(top)],
        "slowest_calls": [vars(call) for call in found.slowest_calls],
        "untimed": found.untimed,
        "damage": found.damage,
    }
