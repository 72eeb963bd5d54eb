"""`ct list`: what can be named on the command line."""

from collections.abc import Callable
from typing import Any

import click

from control_tower.cli.group import Group
from control_tower.cli.output import Format, format_option, print_record, print_rows
from control_tower.registry import Entry, Registry


@click.group("list", cls=Group)
def list_() -> None:
    """List what can be named on the command line."""


def _registry_command(kind: str, plural: str, load: Callable[[], Registry[Any]]) -> None:
    @list_.command(plural, help=f"List {plural}; with a NAME, one {kind} and its arguments.")
    @click.argument("name", required=False)
    @format_option()
    def command(name: str | None, output_format: Format) -> None:
        registry = load()
        if name is None:
            rows = [_record(entry) for entry in registry.entries()]
            table = [{**row, "arguments": [a["name"] for a in row["arguments"]]} for row in rows]
            print_rows(table if output_format == "table" else rows, output_format)
            return
        record = _record(registry.get(name))
        if output_format != "table":
            print_record(record, output_format)
            return
        arguments = record.pop("arguments")
        print_record(record, output_format)
        if arguments:
            click.echo()
            print_rows(arguments, output_format)


def _record(entry: Entry[Any]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "description": entry.description,
        "arguments": [vars(argument) for argument in entry.arguments()],
        "flags": dict(entry.metadata),
    }


def _policies() -> Registry[Any]:
    from control_tower.policies.registry import policies

    return policies


def _protocols() -> Registry[Any]:
    from control_tower.protocols.registry import protocols

    return protocols


_registry_command("policy", "policies", _policies)
_registry_command("protocol", "protocols", _protocols)


@list_.command("monitors")
@click.argument("name", required=False)
@format_option()
def list_monitors(name: str | None, output_format: Format) -> None:
    """List monitors: prompts, presets and factories; with a NAME, one of them and its full prompt."""
    from control_tower.monitors.listing import list_monitors, show_monitor

    if name is None:
        print_rows(list_monitors(), output_format)
        return
    record = show_monitor(name)
    if output_format != "table":
        print_record(record, output_format)
        return
    text = record.pop("text")
    arguments = record.pop("arguments")
    print_record(record, output_format)
    if arguments:
        click.echo()
        print_rows(arguments, output_format)
    if text:
        click.echo("\n" + text.rstrip())


@list_.command("models")
@format_option()
def list_models(output_format: Format) -> None:
    """List short names of models, the roles they play by default, and whether their key is set."""
    import os

    from control_tower.config import load_dotenv
    from control_tower.models.aliases import ALIASES
    from control_tower.models.openrouter import routed
    from control_tower.models.roles import DEFAULT_ROLES, KEY_VARIABLES

    load_dotenv()
    rows: list[dict[str, Any]] = []
    for alias, name in sorted(ALIASES.items()):
        model = routed(name)
        variable = KEY_VARIABLES.get(model.partition("/")[0])
        rows.append(
            {
                "alias": alias,
                "model": model,
                "default_of": [role for role, default in DEFAULT_ROLES.items() if default == alias],
                "key": variable,
                "key_is_set": bool(variable and (os.environ.get(variable) or "").strip()),
            }
        )
    print_rows(rows, output_format)


@list_.command("envs")
@format_option()
def list_envs(output_format: Format) -> None:
    """List environments of all settings and how many tasks they have."""
    from control_tower.settings.environments import all_environments

    rows: list[dict[str, Any]] = []
    for found in all_environments():
        try:
            space = found.env.task_space()
            mains, sides, description = space.mains(), space.sides(), found.env.docs().short_description
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything; others are listed still
            click.echo(f"Warning: {found.id} is not listed: {type(error).__name__}: {error}", err=True)
            continue
        rows.append(
            {
                "environment": found.id,
                "main_tasks": _ids(mains),
                "side_tasks": _ids(sides),
                "builtin": found.builtin,
                "description": description,
            }
        )
    if output_format == "table":
        rows = [
            {**row, "main_tasks": len(row["main_tasks"]), "side_tasks": len(row["side_tasks"])}
            for row in rows
        ]
    print_rows(rows, output_format)


@list_.command("tasks")
@click.option(
    "-e", "--env", "envs", metavar="ENV", multiple=True, help="Only those of this environment (repeatable)."
)
@format_option()
def list_tasks(envs: tuple[str, ...], output_format: Format) -> None:
    """List main and side tasks."""
    from control_tower.settings.environments import all_environments, find_environment

    rows: list[dict[str, Any]] = []
    for found in [find_environment(name) for name in envs] or all_environments():
        space = found.env.task_space()
        for main in space.mains().values():
            description = main.short_description or main.description
            rows.append(_task(found.id, "main", main.id, main.task_category, None, description))
        for side in space.sides().values():
            description = side.short_description or side.goal
            rows.append(_task(found.id, "side", side.id, side.task_category, side.failure_type, description))
    print_rows(rows, output_format)


def _task(
    environment: str, role: str, task: str, category: str, failure: str | None, description: str
) -> dict[str, Any]:
    return {
        "environment": environment,
        "role": role,
        "task": task,
        "category": category,
        "failure_type": failure,
        "description": description.strip().splitlines()[0],
    }


def _ids(tasks: Any) -> list[str]:
    """The ids of a task map; those of a lazy one without loading its tasks."""
    return list(getattr(tasks, "ids", tasks))
