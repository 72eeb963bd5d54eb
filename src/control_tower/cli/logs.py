"""`ct logs`: what a log is, whether it obeys the format, how two differ; parts and torn ones as logs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_record, print_rows, print_section

if TYPE_CHECKING:
    from control_tower.logs.diff import Difference


class LogPath(click.Path):
    """A path, or the address of an object in S3 as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).startswith("s3://") else super().convert(value, param, ctx)


READ = LogPath(path_type=Path, dir_okay=False)

LOGS = click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=READ)


@click.group(cls=Group)
def logs() -> None:
    """Look into eval logs.

    Where logs are only read, `s3://<bucket>/<key>` will do as well: no more is fetched than is needed.
    """


@logs.command()
@LOGS
@format_option()
def info(logs: tuple[Path | str, ...], output_format: Format) -> None:
    """Say what logs are: their run, their format, and how far their samples got.

    Torn logs are read as far as they can be. Of logs in S3 the samples are not checked for damage.
    """
    print_rows([_describe(log) for log in logs], output_format)


@logs.command()
@LOGS
@format_option()
def validate(logs: tuple[Path | str, ...], output_format: Format) -> None:
    """Check that logs are as the format says.

    Ends with 1 when a log has errors; warnings are keys that today's logs have and older ones may not.
    """
    from control_tower.logs.validate import validate_log

    rows: list[dict[str, Any]] = []
    for log in logs:
        for found in validate_log(log):
            row = {"log": str(log), "level": found.level, "rule": found.rule}
            rows.append({**row, "where": found.where, "message": found.message})
    if rows or output_format != "table":
        print_rows(rows, output_format)
    errors = sum(row["level"] == "error" for row in rows)
    click.echo(f"{len(logs)} logs checked, {errors} errors, {len(rows) - errors} warnings", err=True)
    if errors:
        sys.exit(1)


@logs.command()
@click.argument("a", type=READ)
@click.argument("b", type=READ)
@click.option(
    "--ignore",
    type=click.Choice(["ids", "times"]),
    multiple=True,
    help="ids: those made up by a run, as long as they stand for each other; times: when and how long.",
)
@format_option()
def diff(
    a: Path | str, b: Path | str, ignore: tuple[Literal["ids", "times"], ...], output_format: Format
) -> None:
    """Say how two logs differ.

    Each difference of the headers and of the samples' scores, samples that only one has, numbers of
    messages and events, and of every other part of a sample the first difference. Ends with 1 when they
    differ.
    """
    from control_tower.logs.diff import diff_logs

    count = 0
    rows: list[dict[str, Any]] = []
    for each in diff_logs(a, b, ignore):
        count += 1
        row: dict[str, Any] = {"where": each.where, "path": each.path, "only_in": each.only_in}
        if output_format == "table":
            rows.append({**row, **{side: _short(each, side) for side in ("a", "b")}})
        elif output_format == "json":
            rows.append({**row, "a": each.a, "b": each.b})
        else:
            print_rows([{**row, "a": each.a, "b": each.b}], output_format)
    if rows or output_format == "json":
        print_rows(rows, output_format)
    click.echo(f"{count} differences", err=True)
    if count:
        sys.exit(1)


@logs.command()
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The log to write.")
@click.option(
    "--header-of",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="LOG",
    help="Where the log has lost its header: a log of the same run, whose header is taken.",
)
@format_option()
def recover(log: Path, output: Path | None, header_of: Path | None, output_format: Format) -> None:
    """Make a torn log, or that of a killed run, whole again.

    Writes what is sound to LOG-recovered.eval or to the output named; LOG stays as it is. Samples are copied,
    summaries and results worked out anew. Each damaged part is named with the byte at which it begins.
    """
    from control_tower.logs.recover import recover as recover_log

    found = recover_log(log, output, header_of=header_of)
    damage = [{"member": each.member, "byte": each.offset, "damage": each.damage} for each in found.damage]
    record: dict[str, Any] = {
        "log": str(log),
        "output": str(found.output) if found.output else None,
        "status": found.status,
        "samples": len(found.samples),
        "missing": [str(key) for key in found.missing],
        "without_results": list(found.uncomputed),
    }
    if output_format == "table":
        print_record(record, output_format)
        print_section("Damage", damage)
    else:
        print_record({**record, "damage": damage}, output_format)
    if found.output is None:
        click.echo(f"{log}: is whole; nothing was written", err=True)
    elif found.missing:
        click.echo(f"to play what is missing: the run's command with --resume {found.output}", err=True)


@logs.command()
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("sample")
@click.option("--epoch", type=click.IntRange(1), default=1, show_default=True, help="Which epoch of it.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The log to write.")
def bundle(log: Path, sample: str, epoch: int, output: Path | None) -> None:
    """Write one sample of a log as a log of its own, and print its path.

    It goes beside LOG, named after both, or to the output named. SAMPLE is the sample's id.
    """
    from control_tower.logs.archive import SampleKey
    from control_tower.logs.bundles import bundle as write_bundle

    click.echo(write_bundle(log, SampleKey(sample, epoch), output))


def _short(difference: "Difference", side: Literal["a", "b"]) -> str:
    """One side of a difference in a table: its JSON, cut; nothing where that side lacks the place."""
    from control_tower.logs.json_text import dumps

    if not difference.path or difference.only_in not in (None, side):
        return ""
    text = dumps(getattr(difference, side)).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def _describe(log: Path | str) -> dict[str, Any]:
    from control_tower.logs.attempts import read_attempt
    from control_tower.logs.resume import Resumable

    # A log in S3 is not fetched whole only to know whether all of it is sound.
    attempt = read_attempt(log, verify=isinstance(log, Path))
    counts = Resumable((attempt,)).counts
    return {
        "log": str(log),
        "run": attempt.metadata.get("run_name") or attempt.header["eval"].get("task"),
        "policy": attempt.metadata.get("policy"),
        "format": attempt.metadata.get("eval_version"),
        "status": attempt.header.get("status"),
        "created": attempt.header["eval"].get("created"),
        "samples": sum(counts.values()),
        **{state.value: count for state, count in counts.items()},
        "damage": list(attempt.damage),
    }
