"""Write the reference pages from the code; with `--check`, fail when one is not up to date."""

import ast
import dataclasses
import inspect
import itertools
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import click
import http_reference
from pydantic import BaseModel

from control_tower import config
from control_tower.arguments import Argument, describe_arguments
from control_tower.cli.app import cli
from control_tower.cli.group import Group
from control_tower.registry import Registry

FOLDER = Path(__file__).parent.parent / "docs"

INTRODUCTION = """\
# Command reference

This page is made from the code by `make docs`.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. A failure that you can act on is one line on
stderr; `--traceback` anywhere on the line shows where it came from. Listings take
`--format table|json|jsonl`; with `json` and `jsonl` nothing but JSON is on stdout.
"""

ARGUMENTS = """\
# Arguments

Options that end in `-arg` take `key=value` and may be repeated. Hyphens and underscores in keys are equal;
lists are written `a,b` or as YAML, objects as YAML. An unknown key is refused.
"""

CONFIGURATION = """\
# Configuration

An option on the command line comes first, then the environment variable, then `control-tower.toml` in the
user's configuration folder (`name = "value"`), then the default.
"""


def main() -> int:
    """Write or check the pages."""
    described = http_reference.description()
    texts = {
        "cli.md": "\n".join(page()).rstrip() + "\n",
        "http-api.md": http_reference.page_text(described),
        "openapi.json": http_reference.openapi_text(described),
    }
    old = [
        name
        for name, text in texts.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for name in old:
            print(f"docs/{name} is not up to date: run `make docs`", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (FOLDER / name).write_text(texts[name], encoding="utf-8")
    return 0


def _written(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.is_file() else None


def page() -> Iterator[str]:
    """The lines of the page."""
    yield INTRODUCTION
    for path, command in commands(cli, "ct"):
        yield from command_section(path, command)
    yield ARGUMENTS
    from control_tower.monitors.registry import monitors
    from control_tower.policies.registry import policies
    from control_tower.protocols.registry import protocols

    yield from registry_section("Policies: `--policy`, with `--policy-arg`", policies)
    yield from registry_section("Protocols: `--protocol`, with `--protocol-arg`", protocols)
    yield from registry_section("Monitors", monitors)
    yield from other_arguments()
    yield CONFIGURATION
    rows = [(f"`CONTROL_TOWER_{name.upper()}`", f"`{name}`", text) for name, text in config.OPTIONS.items()]
    yield from table(("Variable", "In `control-tower.toml`", "What it is"), rows)


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every visible command that does something, with the words that call it."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def command_section(path: str, command: click.Command) -> Iterator[str]:
    """A command: its line, its text, its options."""
    context = click.Context(command, info_name=path)
    yield f"## {path}\n"
    yield f"`{' '.join([path, *command.collect_usage_pieces(context)])}`\n"
    for part in (command.help or "").split("\n\n"):
        lines = part.splitlines()
        if lines[:1] == ["\b"]:
            yield "```sh\n" + textwrap.dedent("\n".join(lines[1:])) + "\n```\n"
        else:
            yield " ".join(part.split()) + "\n"
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    yield from table(
        ("Option", "Default", "What it does"), [option_row(option, context) for option in options]
    )


def option_row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    """An option's names with its metavar, its default, its text."""
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" `{option.make_metavar(context)}`"
    info = option.to_info_dict()
    default = info["default"]
    shown = "" if default in (None, (), []) or option.is_flag else f"`{default}`"
    if isinstance(option.show_default, str):
        shown = option.show_default
    return names, shown, " ".join((option.help or "").split())


def registry_section(title: str, registry: Registry[Any]) -> Iterator[str]:
    """The entries of a registry with their arguments."""
    yield f"## {title}\n"
    for entry in registry.entries():
        if entry.name.startswith("ct/"):
            yield f"### {entry.name}\n\n{entry.description}\n"
            yield from argument_table(entry.arguments())


def other_arguments() -> Iterator[str]:
    """The keys of `--white-arg` and `--eval-arg`."""
    from inspect_ai.log import EvalConfig

    from control_tower.evals.local import eval_arg_names
    from control_tower.game.white import White

    yield "## What the protocol may do to the agent: `--white-arg`\n"
    yield from argument_table(fields(White))
    yield "## Inspect's own settings: `--eval-arg`\n"
    yield "What each of these does is said in Inspect's own documentation of `eval()`.\n"
    taken = [argument for argument in describe_arguments(EvalConfig) if argument.name in eval_arg_names()]
    yield from table(("Argument", "Type"), [(f"`{a.name}`", a.type) for a in taken])


def fields(model: type[BaseModel]) -> list[Argument]:
    """A model's fields, described by the text under each."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in itertools.pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            texts[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return [
        dataclasses.replace(argument, description=argument.description or texts.get(argument.name, ""))
        for argument in describe_arguments(model)
    ]


def argument_table(arguments: Iterable[Argument]) -> Iterator[str]:
    """Arguments with type, default and text."""
    rows = [(f"`{a.name}`", a.type, default_text(a), a.description) for a in arguments]
    yield from table(("Argument", "Type", "Default", "What it is"), rows)


def default_text(argument: Argument) -> str:
    """A default as it would be typed; nothing for none or an empty list."""
    if argument.required:
        return "required"
    value = argument.default
    if value is None or (isinstance(value, Sized) and not value):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; nothing when there are no rows."""
    if not rows:
        return
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


if __name__ == "__main__":
    assert isinstance(cli, Group)
    sys.exit(main())
