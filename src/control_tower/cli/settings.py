"""`ct settings`: checks of the installed settings."""

import sys

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_rows

_BY_HAND = (
    "this version does not manage settings; put the setting's folder below .settings/ "
    "(or name another folder in CONTROL_TOWER_SETTINGS_DIR)"
)


@click.group(
    cls=Group,
    refused=dict.fromkeys(
        ("pull", "list", "status", "update", "remove", "new", "task-sets", "check"), _BY_HAND
    ),
)
def settings() -> None:
    """Check the installed settings."""


@settings.command()
@click.option("-e", "--env", "envs", metavar="ENV", multiple=True, help="Only this environment (repeatable).")
@format_option()
def validate(envs: tuple[str, ...], output_format: Format) -> None:
    """Check that environments and their tasks load and agree with each other.

    Ends with 1 when something is wrong.
    """
    from control_tower.environments.validate import Finding, validate_environment
    from control_tower.settings.discovery import load_settings
    from control_tower.settings.environments import all_environments, find_environment

    checked = [find_environment(name) for name in envs] if envs else all_environments()
    findings = [finding for found in checked for finding in validate_environment(found.id, found.env)]
    if not envs:
        findings += [
            Finding(f"{setting.name}/{env_id}".rstrip("/"), f"does not load: {type(error).__name__}: {error}")
            for setting in load_settings().values()
            for env_id, error in setting.errors.items()
        ]
    rows = [{"environment": f.environment, "task": f.task, "problem": f.message} for f in findings]
    if rows or output_format != "table":
        print_rows(rows, output_format)
    click.echo(f"{len(checked)} environments checked, {len(rows)} problems", err=True)
    if rows:
        sys.exit(1)
