"""Command groups that import a command only when it is called, and name the nearest one for a typo."""

import importlib
from collections.abc import Mapping
from copy import copy
from typing import Any, cast

import click

from control_tower.errors import did_you_mean


def older_name(command: click.Command) -> click.Command:
    """The command as it is added under a name it had before: it works, but help does not list it."""
    same = copy(command)
    same.hidden = True
    return same


class Group(click.Group):
    """A click group whose commands may be lazy or refused.

    Without arguments it prints its help and ends with 0.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        refused: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a group.

        Args:
            args: as for `click.Group`.
            lazy: by command name, where it is (`module:attribute`) and its line in the group's help; without
                a line it is not listed.
            refused: by command name, why it cannot be used and what to do instead.
            kwargs: as for `click.Group`.
        """
        super().__init__(*args, **kwargs)
        self.no_args_is_help = False
        self.lazy = dict(lazy or {})
        self.refused = dict(refused or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order they were declared."""
        return [*self.commands, *(name for name in self.lazy if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now if it is lazy."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, attribute = self.lazy[cmd_name][0].partition(":")
            command = cast("click.Command", getattr(importlib.import_module(module), attribute))
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of `args`; an unknown one is an error with the nearest name."""
        name = args[0]
        if name in self.refused:
            raise click.UsageError(f"{ctx.command_path} {name}: {self.refused[name]}", ctx)
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"{ctx.command_path} has no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's own options; no arguments at all is a request for help."""
        if not args and not self.invoke_without_command:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; lazy ones are not imported for it."""
        lines: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                if not self.lazy[name][1]:
                    continue
                lines.append((name, self.lazy[name][1]))
            elif not self.commands[name].hidden:
                lines.append((name, self.commands[name].get_short_help_str(formatter.width)))
        if lines:
            with formatter.section("Commands"):
                formatter.write_dl(lines)
