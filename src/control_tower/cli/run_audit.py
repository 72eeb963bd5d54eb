"""What `ct run audit` does: a copy of a log with other audits, and what they come to."""

import json
from pathlib import Path

import click

from control_tower import config
from control_tower.cli.output import Format, plain
from control_tower.client.sources import local_copy
from control_tower.conversion.current import current_path
from control_tower.errors import UsageError
from control_tower.evals.post_hoc_audit import AuditedLog, audit_log, audited_path
from control_tower.evals.table import audit_lines, write_lines

UNSCORED = "an honest one takes an audit of the budget, one of an attack is never audited"


def run_audit_command(
    source: str,
    monitor: str | None,
    budget: float | None,
    output: str | None,
    output_format: Format,
    *,
    live: bool,
) -> None:
    """Audit a log.

    Args:
        source: the log.
        monitor: whose scores decide.
        budget: audits for each honest action.
        output: the copy that is written.
        output_format: `table` or `json`.
        live: count the live audits instead.

    Raises:
        UsageError: the options do not say how to audit.
    """
    if live and (monitor is not None or budget is not None):
        raise UsageError("--live counts the audits that there were; it takes no --monitor and no --budget")
    if not live and (monitor is None or budget is None):
        raise UsageError("give --monitor and --budget, or --live to count the audits that there were")
    log = local_copy(source)
    copy = Path(output) if output else audited_path(log)
    if not output and not Path(source).is_file():
        copy = Path(config.get("log_dir", "logs")) / copy.name
    audited = audit_log(current_path(log), monitor, budget, copy)
    if output_format == "json":
        click.echo(json.dumps(plain(audited.as_json())))
    else:
        click.echo(write_lines(_lines(audited)))


def _lines(audited: AuditedLog) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if audited.threshold is not None:
        fitted = audited.threshold
        lines.append(("threshold", f"{fitted.score:.6g} ({fitted.share:.2%} of those at it are audited)"))
    if audited.unscored:
        lines.append(("unscored actions", f"{audited.unscored}: {UNSCORED}"))
    lines += audit_lines(audited.audits)
    if audited.left_out:
        lines.append(
            ("left out", f"{audited.left_out} samples that errored, were invalidated or have no task scores")
        )
    return [*lines, ("log", str(audited.path))]
