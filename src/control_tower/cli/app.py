"""The command `ct`: its groups, and how every failure becomes a line and an exit code."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from control_tower import __version__
from control_tower.cli.group import Group
from control_tower.errors import ExpectedError, did_you_mean

INTERRUPTED = 130


@click.group(
    cls=Group,
    lazy={
        "demo": ("control_tower.cli.demo:demo", "Run a whole evaluation without keys, Docker or network."),
        "run": ("control_tower.cli.run:run", "Run evaluations."),
        "fleet": ("control_tower.cli.fleet:fleet", "Look at fleets, lead them, clean up after them."),
        "logs": ("control_tower.cli.logs:logs", "Look into eval logs."),
        "metrics": ("control_tower.cli.metrics:metrics", "Measure safety and usefulness, with intervals."),
        "game-metrics": ("control_tower.cli.metrics:game_metrics", ""),
        "runs": ("control_tower.cli.runs:runs", "Keep runs, find them again, compare them."),
        "login": ("control_tower.cli.login:login", "Log in to a viewer, and keep its token."),
        "logout": ("control_tower.cli.login:logout", "Forget the token of a viewer."),
        "whoami": ("control_tower.cli.login:whoami", "Say who the viewer takes you for."),
        "tokens": ("control_tower.cli.tokens:tokens", "List, make and revoke tokens for the viewer."),
        "viewer": ("control_tower.cli.viewer:viewer", "Serve kept runs to a browser and to other machines."),
        "timing": ("control_tower.cli.timing:timing", "Say where a log's time, tokens and money went."),
        "list": ("control_tower.cli.list:list_", "List policies, protocols, monitors, models and tasks."),
        "settings": ("control_tower.cli.settings:settings", "Check the installed settings."),
        "envs": ("control_tower.cli.envs:envs", "List and check environments."),
        "models": ("control_tower.cli.models:models", "List model aliases and roles."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="control-tower %(version)s")
def cli() -> None:
    """Evaluate AI-control protocols: what oversight stops an agent that sabotages while it works?

    Start with `ct demo`.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run `ct` and end the process.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. An expected error is one line on
    stderr, any other keeps its traceback; `--traceback` anywhere on the line shows both.

    Args:
        args: the command line without the program's name; `sys.argv` by default.
    """
    # What is imported stays: looking for garbage among it is a sixth of starting up.
    gc.set_threshold(50_000)
    words = list(sys.argv[1:] if args is None else args)
    options = words[: words.index("--")] if "--" in words else words
    traceback = "--traceback" in options
    if traceback:
        words.remove("--traceback")
    if logging.lastResort:
        logging.lastResort.setFormatter(logging.Formatter("Warning: %(message)s"))
    try:
        result: object = cli.main(words, prog_name="ct", standalone_mode=False)
        sys.stdout.flush()
    except (click.ClickException, ExpectedError) as error:
        if traceback:
            raise
        _fail(_line(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("Interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from writing to them once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(result if isinstance(result, int) else 0)


def _line(error: click.ClickException | ExpectedError) -> str:
    """The message of an error on one line, secrets masked."""
    from control_tower.cli.output import printable
    from control_tower.config import redact

    if isinstance(error, click.NoSuchOption):
        known = error.ctx.command.get_params(error.ctx) if error.ctx else []
        options = [name for parameter in known for name in parameter.opts if name.startswith("--")]
        where = error.ctx.command_path if error.ctx else "ct"
        message = f"{where} has no option {error.option_name!r}{did_you_mean(error.option_name, options)}"
    elif isinstance(error, click.ClickException):
        message = error.format_message()
    else:
        message = str(error)
    return "Error: " + printable(redact(" ".join(message.split())))


def _fail(line: str, code: int) -> NoReturn:
    click.echo(line, err=True)
    sys.exit(code)
