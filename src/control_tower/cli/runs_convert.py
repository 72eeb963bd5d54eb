"""What `ct runs convert` does: older logs written in the current format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from control_tower.client.sources import local_copy, run_of
from control_tower.conversion.batch import Converted, Request, convert_logs
from control_tower.errors import UsageError


def run_convert_command(
    sources: Sequence[str],
    honest: str | None,
    attack: str | None,
    output_dir: str,
    *,
    upload: bool,
    dry_run: bool,
    diff: bool,
) -> None:
    """Convert logs and print a line of JSON for each.

    Args:
        sources: logs whose stream they say themselves.
        honest: a log of honest samples.
        attack: a log of attack samples.
        output_dir: where converted logs go.
        upload: make a run of each; of one that was uploaded before it is the same run.
        dry_run: write nothing.
        diff: say what was changed, by rule.

    Raises:
        UsageError: no log is named, or what is named is none.
        ExpectedError: a log cannot be converted; nothing is written.
    """
    if upload and dry_run:
        raise UsageError("--dry-run writes nothing that --upload could upload: give one of the two")
    if not (sources or honest or attack):
        raise UsageError("name a log to convert, or --honest and --attack logs")
    origins: dict[Path, str] = {}

    def taken(source: str) -> Path:
        path = local_copy(source)
        if run := run_of(source):
            origins[path] = run
        return path

    request = Request(
        [taken(source) for source in sources],
        taken(honest) if honest else None,
        taken(attack) if attack else None,
        origins,
    )
    converted = convert_logs(request, Path(output_dir), _say, write=not dry_run)
    for one in converted:
        line: dict[str, Any] = one.as_json(written=not dry_run)
        if upload:
            from control_tower.client.upload import upload_log

            line["run_id"] = upload_log(one.path).run_id
        if diff:
            line |= {"changes": dict(one.changes), "not_kept": dict(one.not_kept)}
        click.echo(json.dumps(line))
    for one in converted:
        _tell(one, dry_run=dry_run, diff=diff)


def _tell(one: Converted, *, dry_run: bool, diff: bool) -> None:
    names = " and ".join(map(str, one.sources))
    if diff:
        _say(f"{names}: what changes")
        for rule, times in one.changes.items():
            _say(f"  {times:>7}  {rule}")
    for what, times in one.not_kept.items():
        _say(f"{names}: not kept: {what} ({times})")
    _say(f"{names}: {'would be' if dry_run else 'is'} {one.path}")


def _say(line: str) -> None:
    click.echo(line, err=True)
