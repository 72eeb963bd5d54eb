"""The options of runs and replays, also those that are refused, without importing what they configure."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from control_tower.errors import did_you_mean

C = TypeVar("C", bound=Callable[..., Any])

NO_EC2 = "EC2 fleets come later; --fleet local runs the same fleet on this machine"

REFUSED: dict[str, str] = {
    "--run-config": "not available yet; give the options themselves",
    "--ec2": NO_EC2,
    "--ec2-arg": NO_EC2,
    "--hawk": "Hawk is not supported",
    "--hawk-arg": "Hawk is not supported",
    "--harness-arg": "only the null harness is available, which takes no arguments",
    "--internet": "sandboxes have no network beyond the sample's own",
    "--no-internet-simulator": "there is no internet simulator",
    "--no-intranet": "sandboxes have no network beyond the sample's own",
    "--sandbox-arg": "the sandboxes take no arguments",
    "--diagnostics": "not available yet",
}
"""Options that other versions have and this one does not: refused by name, never ignored."""

_REFUSED_FLAGS = frozenset({"--ec2", "--hawk", "--internet", "--no-internet-simulator", "--no-intranet"})


def whole_tags(_ctx: click.Context, _option: click.Parameter, tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of a run, which hold no comma."""
    for tag in tags:
        if "," in tag:
            raise click.BadParameter(f"{tag!r}: a tag holds no comma; give several tags one by one")
    return tags


UPLOAD = click.option(
    "--upload/--no-upload",
    default=None,
    help="Make a run of the log, or keep it here only.  [default: make one if possible]",
)

_FLEETS = ("local",)


def _known_fleet(_ctx: click.Context, _option: click.Parameter, fleet: str | None) -> str | None:
    if fleet == "ec2":
        raise click.UsageError(f"--fleet ec2: {NO_EC2}")
    if fleet is not None and fleet not in _FLEETS:
        raise click.UsageError(f"there is no fleet {fleet!r}{did_you_mean(fleet, _FLEETS)}")
    return fleet


_REFUSED_SHORT = {"--harness-arg": "-ha"}


def eval_options(function: C) -> C:
    """Add every option of a run with one policy to a command."""
    return _with_options(function, [*_SELECTION, *_POLICY, *_OLD_SPELLINGS])


def control_eval_options(function: C) -> C:
    """Add every option of a run with an honest and an attack policy to a command."""
    return _with_options(function, [*_SELECTION, *_POLICIES])


def replay_options(function: C) -> C:
    """Add the options that a replay of a log has to a command."""
    check = click.option(
        "--check",
        is_flag=True,
        help="End with 1 when a task score or landing is not the recorded one, or a play left its recording.",
    )
    return _with_options(function, [*_ENVIRONMENTS_AND_TASKS, _LIMIT, check])


def refused(*names: str) -> Callable[[C], C]:
    """Add options of `REFUSED` to a command, so that it refuses them by name."""

    def add(function: C) -> C:
        for name in names:
            function = _refused(name)(function)
        return function

    return add


def _with_options(function: C, who_and_what: Sequence[Callable[[Any], Any]]) -> C:
    for option in reversed([*who_and_what, *_SIDES, *_WHERE, *_HOW, *_OUTPUT, *_hidden()]):
        function = option(function)
    return function


def _hidden() -> list[Callable[[Any], Any]]:
    aliases = [
        click.option("--environment", "environment_alias", multiple=True, hidden=True),
        click.option("--no-internet", is_flag=True, hidden=True),
        click.option("--no-hawk", is_flag=True, hidden=True),
    ]
    return aliases + [_refused(name) for name in REFUSED]


def _refused(name: str) -> Callable[[Any], Any]:
    def refuse(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{name}: {REFUSED[name]}", ctx)

    names = [name, *([_REFUSED_SHORT[name]] if name in _REFUSED_SHORT else [])]
    if name in _REFUSED_FLAGS:
        return click.option(*names, is_flag=True, hidden=True, expose_value=False, callback=refuse)
    return click.option(*names, multiple=True, hidden=True, expose_value=False, callback=refuse)


_ENVIRONMENTS_AND_TASKS = [
    click.option(
        "-e",
        "--env",
        "environments",
        multiple=True,
        metavar="ENV",
        help="An environment; alone it is one sample without tasks. Repeatable.",
    ),
    click.option(
        "-t",
        "--main-task",
        "main_tasks",
        multiple=True,
        metavar="TASK",
        help="A main task; a+b puts several into one sample. Repeatable.",
    ),
    click.option(
        "-s",
        "--side-task",
        "side_tasks",
        multiple=True,
        metavar="TASK",
        help="A side task, combined with each main task. Repeatable.",
    ),
]

_LIMIT = click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N samples.")

_SELECTION = [
    *_ENVIRONMENTS_AND_TASKS,
    click.option(
        "--task-file",
        "task_file",
        multiple=True,
        metavar="NAME|FILE",
        help="A task set by name, or a JSONL file of env, main_task, side_task. Repeatable.",
    ),
    click.option(
        "--from-run",
        "from_run",
        metavar="LOG",
        help="Take the samples of a log (.eval); -e, -t and -s choose among them.",
    ),
    click.option(
        "--all", "expand_all", is_flag=True, help="Everything the environments admit for the policy."
    ),
    click.option("--just-main-tasks", is_flag=True, help="Every main task alone."),
    click.option(
        "--just-side-tasks", is_flag=True, help="Every side task once, with the first main task it goes with."
    ),
    click.option("--env-only", is_flag=True, help="One sample without tasks for each environment."),
    click.option(
        "-ea",
        "--env-arg",
        "env_args",
        multiple=True,
        metavar="[ENV:]KEY=VALUE",
        help="An argument of an environment. Repeatable.",
    ),
    _LIMIT,
    click.option(
        "--main-tasks-with-no-scorers",
        type=click.Choice(["error", "include", "exclude"]),
        default="error",
        show_default=True,
        help="What to do with main tasks that cannot be scored.",
    ),
]

_POLICY = [
    click.option("--policy", metavar="NAME", help="The red side.  [default: honest]"),
    click.option(
        "-p",
        "--policy-arg",
        "policy_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="An argument of the policy. Repeatable.",
    ),
]

_OLD_SPELLINGS = [
    click.option("--untrusted-policy", hidden=True),
    click.option("-up", "untrusted_policy_args", multiple=True, hidden=True),
    click.option("--untrusted-model", hidden=True),
]

_POLICIES = [
    click.option(
        "--honest-policy", default="honest", show_default=True, metavar="NAME", help="Plays honest samples."
    ),
    click.option(
        "-hp",
        "--honest-policy-arg",
        "honest_policy_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="An argument of the honest policy. Repeatable.",
    ),
    click.option(
        "--attack-policy", default="attack", show_default=True, metavar="NAME", help="Plays attack samples."
    ),
    click.option(
        "-ap",
        "--attack-policy-arg",
        "attack_policy_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="An argument of the attack policy. Repeatable.",
    ),
]

_SIDES = [
    click.option(
        "--protocol", default="null-blue-team", show_default=True, metavar="NAME", help="The blue side."
    ),
    click.option(
        "-bp",
        "--protocol-arg",
        "protocol_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="An argument of the protocol. Repeatable.",
    ),
    click.option(
        "-wa",
        "--white-arg",
        "white_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="What both sides may do: private_tools, harnesses, max_steps. Repeatable.",
    ),
    click.option(
        "--harness",
        type=click.Choice(["null", "inspect_swe"]),
        default="null",
        show_default=True,
        help="The loop that plays; inspect_swe is not available yet.",
    ),
    click.option(
        "--model-role",
        "model_roles",
        multiple=True,
        metavar="ROLE=MODEL|JSON",
        help="The model of a role: a full name, an alias, or JSON with model_name and config. Repeatable.",
    ),
]

_WHERE = [
    click.option(
        "--sandbox",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="auto, bwrap, docker, process, replay (serves what --from-run recorded), "
        "or an installed Inspect sandbox.",
    ),
    click.option("--log-dir", metavar="FOLDER", help="Where the log goes.  [default: logs]"),
    click.option(
        "--fleet",
        metavar="local",
        callback=_known_fleet,
        help="Play by worker processes of this machine, each sample a job that is done once whatever dies.",
    ),
    click.option(
        "--fleet-arg",
        "fleet_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="Of the fleet, as workers=4, slots=2 or budget_usd=20. Repeatable.",
    ),
]

_HOW = [
    click.option("--epochs", type=click.IntRange(min=1), metavar="N", help="Play each sample N times."),
    click.option("--max-samples", type=click.IntRange(min=1), metavar="N", help="Samples played at once."),
    click.option("--message-limit", type=click.IntRange(min=1), metavar="N", help="Messages of a sample."),
    click.option(
        "--sample-time-limit",
        type=click.IntRange(min=1),
        metavar="SECONDS",
        help="Time of a sample; half as much again goes to scoring.",
    ),
    click.option("--no-fail-on-error", is_flag=True, help="End with success although samples errored."),
    click.option(
        "--eval-arg",
        "eval_args",
        multiple=True,
        metavar="KEY=VALUE",
        help="A field of Inspect's EvalConfig. Repeatable.",
    ),
    click.option(
        "--scorer-timeout",
        type=click.IntRange(min=1),
        metavar="SECONDS",
        help="Time of a task's scorer.  [default: 600]",
    ),
    click.option("--score-main-on-attack", is_flag=True, help="Score main tasks on attack samples too."),
    click.option(
        "--landing-probe",
        type=click.Choice(["off", "each-action", "declared"]),
        default="declared",
        show_default=True,
        help="Test live side tasks after each action: never, always, or where the task says it is cheap.",
    ),
    click.option(
        "--smoke",
        is_flag=True,
        help="Check sandbox, scorers, models and prices, then play one sample of each stream.",
    ),
    click.option(
        "--resume",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[LOG]",
        help="Play what an unfinished log of the same run lacks; without LOG the newest one.",
    ),
]

_OUTPUT = [
    click.option("--run-name", metavar="NAME", help="Name of the run.  [default: policy, protocol, tasks]"),
    click.option(
        "--tag",
        "tags",
        callback=whole_tags,
        multiple=True,
        metavar="TAG",
        help="A tag of the run. Repeatable.",
    ),
    UPLOAD,
]
