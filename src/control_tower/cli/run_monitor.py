"""What `ct run monitor` does: more verdicts in a copy of a log, or what they would cost."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click
import yaml

from control_tower.cli.output import Format, plain, print_rows
from control_tower.client.sources import current_log
from control_tower.errors import UsageError
from control_tower.evals.default_roles import monitor_roles
from control_tower.evals.judging_estimate import TOKENS_PER_ANSWER, estimate
from control_tower.evals.post_hoc_monitor import (
    DEFAULT_SAVE_DIR,
    Kind,
    MonitoredLog,
    plan_judging,
    run_judging,
)
from control_tower.evals.table import write_lines
from control_tower.evals.upload import Outcome, check_viewer, require_run, upload_finished, wish_of
from control_tower.models.cost import Cost
from control_tower.models.roles import parse_roles
from control_tower.monitors.config import Monitor, parse_monitors


def run_monitor_command(
    source: str,
    monitors: Sequence[str],
    action_monitor: str | None,
    kind: Kind,
    model_roles: Sequence[str],
    save_dir: str | None,
    run_name: str | None,
    tags: Sequence[str],
    upload: bool | None,
    output_format: Format,
    *,
    estimate_only: bool,
) -> None:
    """Judge a log.

    Args:
        source: the log.
        monitors: YAML, as `monitors=[...]` takes it.
        action_monitor: one monitor by name, instead.
        kind: whether actions or whole trajectories are judged.
        model_roles: models by role.
        save_dir: where the copy goes.
        run_name: name of the copy's run.
        tags: of the copy's run.
        upload: whether the copy becomes a run; None is if possible.
        output_format: `table` or `json`.
        estimate_only: say what it would cost, and ask nobody.

    Raises:
        ExpectedError: names, roles or the log cannot be used, or judging failed.
    """
    log = current_log(source)
    parsed = _monitors(monitors, action_monitor)
    judging = plan_judging(log, parsed, kind, Path(save_dir) if save_dir else DEFAULT_SAVE_DIR)
    demo = all(key.id.startswith("demo/") for key in judging.keys)
    bound = monitor_roles(parsed, parse_roles(model_roles), demo=demo)
    if bound.note:
        click.echo(bound.note, err=True)
    if estimate_only:
        _show_estimate(estimate(judging, bound.roles), output_format)
        return
    wish = wish_of(upload)
    if problem := check_viewer(wish):
        click.echo(f"the copy will probably not be uploaded: {problem}", err=True)
    written = run_judging(judging, bound.roles)
    uploaded = upload_finished(written.path, wish, tags, run_name)
    _show(written, uploaded, output_format)
    require_run(uploaded, wish)


def _show(written: MonitoredLog, uploaded: Outcome, output_format: Format) -> None:
    if output_format == "json":
        click.echo(json.dumps(plain({**written.as_json(), **uploaded.as_json()})))
        return
    lines = [("verdicts", str(written.verdicts)), ("unscored", str(written.unscored))]
    if written.verdicts == written.unscored:
        lines.append(("warning", "no verdict is a number: there is nothing to measure"))
    lines += [("kept from earlier", str(written.kept))] if written.kept else []
    lines += [("why", reason) for reason in written.reasons[:5]]
    click.echo(write_lines([*lines, ("log", str(written.path))]))
    if line := uploaded.line():
        click.echo(line)


def _monitors(given: Sequence[str], action_monitor: str | None) -> tuple[Monitor, ...]:
    if bool(given) == bool(action_monitor):
        raise UsageError("name the monitors with -m, such as -m '[simple, {prompt: strong, model: judge}]'")
    if action_monitor:
        return parse_monitors([action_monitor])
    items: list[Any] = []
    for text in given:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UsageError(f"-m {text!r} is not YAML") from None
        items += cast("list[Any]", value) if isinstance(value, list) else [value]
    return parse_monitors(items)


def _show_estimate(estimates: Sequence[Any], output_format: Format) -> None:
    if output_format == "json":
        click.echo(json.dumps([plain(one.as_json()) for one in estimates]))
        return
    print_rows([{**vars(one), "cost": str(one.cost)} for one in estimates], output_format)
    total = sum((one.cost for one in estimates), Cost())
    about = f"About {total} in all, at {TOKENS_PER_ANSWER} tokens an answer"
    click.echo(f"\n{'No model is paid' if total == Cost() else about}; no model was asked.")
