"""What `ct run eval` and `ct run control-eval` do: options to RunConfig, run, table or JSON."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from control_tower import config as configuration
from control_tower.arguments import parse_arguments, parse_key_values
from control_tower.cli.output import Format, plain
from control_tower.errors import Interrupted, OperationError, StateError, UsageError
from control_tower.evals.default_roles import bind_roles
from control_tower.evals.local import LocalRun, check_eval_args, from_here, run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.recordings_compare import Comparison, compare
from control_tower.evals.resume import resume_run
from control_tower.evals.run_config import FunctionRef, Kind, RunConfig, SandboxConfig, TaskSelection
from control_tower.evals.smoke import checks
from control_tower.evals.table import result_lines, write_lines
from control_tower.evals.upload import Outcome, Wish, check_viewer, require_run, upload_finished, wish_of
from control_tower.game.white import White
from control_tower.models.roles import make_models, parse_roles
from control_tower.policies.registry import policies

if TYPE_CHECKING:
    from control_tower.cli.run_fleet import FleetEnd
    from control_tower.fleet.settings import FleetSettings


def run_command(kind: Kind, options: Mapping[str, Any], output_format: Format) -> int:
    """Run what the options of a command say.

    Returns:
        The exit code: 0, or 1 when samples errored or the run did not finish.
    """
    config = run_config(kind, options)
    return play(
        config,
        options["log_dir"],
        output_format,
        smoke=options["smoke"],
        resume=options["resume"],
        upload=wish_of(False if options["smoke"] and options["upload"] is None else options["upload"]),
        fleet=fleet_of(options, config),
    )


def fleet_of(options: Mapping[str, Any], config: RunConfig) -> FleetSettings | None:
    """What `--fleet` and `--fleet-arg` ask for; None for a run in this process."""
    if options["fleet"] is None and not options["fleet_args"]:
        return None
    from control_tower.cli.run_fleet import fleet_settings

    return fleet_settings(options, config)


@dataclass(frozen=True)
class Played:
    """A run that was played."""

    run: LocalRun
    comparison: Comparison | None
    """With what it replays."""
    fleet: FleetEnd | None = None
    """What played it, where it was no single process."""

    def upload(self, wish: Wish) -> Outcome:
        """Make a run of its log, if it is to become one."""
        unfinished = self.fleet is not None and self.fleet.uploads(wish)
        return upload_finished(self.run.results.log, wish, unfinished=unfinished)


def play(
    config: RunConfig,
    log_dir: str | None,
    output_format: Format,
    *,
    smoke: bool = False,
    resume: str | None = None,
    check: bool = False,
    upload: Wish = "never",
    fleet: FleetSettings | None = None,
) -> int:
    """Run a configuration and show what came of it.

    Args:
        config: the run; models are bound to roles that it leaves open.
        log_dir: where the log goes; the configured folder when None.
        output_format: `table` or `json`.
        smoke: check what the run needs and play one sample of each stream only.
        resume: the log to go on from; empty is the newest unfinished one of this run.
        check: end with 1 when a replay is not as it was recorded.
        upload: whether the log becomes a run.
        fleet: how worker processes play it; None plays it in this one.

    Returns:
        The exit code: 0, or 1 when samples errored or the run did not finish.
    """
    if smoke and resume is not None:
        raise UsageError("--smoke tries a run out and --resume goes on with one: give one of the two")
    if problem := check_viewer(upload):
        click.echo(f"the log will probably not be uploaded: {problem}", err=True)
    if fleet is None:
        played = play_here(config, log_dir, smoke=smoke, resume=resume)
    else:
        from control_tower.cli.run_fleet import play_fleet

        played = play_fleet(ready(config), fleet, log_folder(log_dir))
    return 0 if played is None else show(played, output_format, upload, check=check)


def show(played: Played, output_format: Format, upload: Wish, *, check: bool = False) -> int:
    """Show what came of a run, and make a run of its log; arguments and result are those of `play`."""
    log = played.run.results.log
    if output_format == "table":
        click.echo(as_table(played))
    uploaded = played.upload(upload)
    if output_format == "json":
        told = {} if upload == "never" else uploaded.as_json()
        click.echo(json.dumps({**as_json(played), **told}))
    else:
        if line := uploaded.line():
            click.echo(line)
        click.echo(f"\nNext: {inspect_command()} view --log-dir {shlex.quote(str(log.parent))}")
    if played.fleet:
        played.fleet.check()
    check_finished(played.run)
    require_run(uploaded, upload)
    if check and played.comparison and not played.comparison.same:
        raise OperationError(f"the replay is not as it was recorded: {played.comparison.sentence}")
    return 0


def play_here(
    config: RunConfig, log_dir: str | None, *, smoke: bool = False, resume: str | None = None
) -> Played:
    """Run a configuration here, telling on stderr what happens; the arguments are those of `play`."""
    plan = ready(config)
    folder = log_folder(log_dir)
    if smoke:
        plan = _smoke(plan)
    if resume is not None:
        run = resume_run(plan, folder, Path(resume) if resume else None)
    else:
        run = run_local(plan, folder)
    return Played(run, compare(plan, run.results.log) if plan.replaying or plan.nothing_runs else None)


def ready(config: RunConfig) -> RunPlan:
    """The plan of a configuration, its models bound and everything checked; says what is about to run."""
    configuration.load_dotenv()
    command = configuration.redact(shlex.join(["ct", *sys.argv[1:]]))
    plan = RunPlan(config, command)
    bound = bind_roles(plan, config.model_roles)
    plan = plan.with_roles(bound.roles)
    plan.check_requirements()
    plan.check_policies()
    make_models(plan.config.model_roles)  # a missing key is said before anything else happens
    _announce(plan, bound.note)
    return plan


def log_folder(log_dir: str | None) -> Path:
    """Where logs go; the configured folder when None is given."""
    return Path(log_dir or configuration.get("log_dir") or "logs")


def run_config(kind: Kind, options: Mapping[str, Any]) -> RunConfig:
    """The run that the options of a command describe.

    Raises:
        UsageError: values that do not fit; unknown names are found when the run is planned.
    """
    roles = list(options["model_roles"])
    if kind == "eval":
        policy, untrusted_model = _policy(options)
        who = {"policy": policy}
        if untrusted_model:
            roles.append(f"untrusted={untrusted_model}")
    else:
        who = {name: _function(options, name) for name in ("honest_policy", "attack_policy")}
    if options["harness"] != "null":
        raise UsageError("--harness inspect_swe: only the null harness is available")
    return RunConfig(
        kind=kind,
        task_selection=_selection(options),
        **who,
        protocol=_function(options, "protocol"),
        white=parse_arguments(White, parse_key_values(options["white_args"], "--white-arg"), "white"),
        model_roles=parse_roles(roles),
        sandbox=SandboxConfig(sandbox=options["sandbox"]),
        scorer_timeout=options["scorer_timeout"],
        score_main_on_attack=options["score_main_on_attack"],
        landing_probe=options["landing_probe"],
        eval_args=_eval_args(options),
        run_name=options["run_name"],
        tags=options["tags"],
    )


def _function(options: Mapping[str, Any], name: str) -> FunctionRef:
    """The policy or protocol that `--<name>` and `--<name>-arg` name."""
    flag = "--" + name.replace("_", "-") + "-arg"
    return FunctionRef(name=options[name], args=parse_key_values(options[f"{name}_args"], flag))


def _policy(options: Mapping[str, Any]) -> tuple[FunctionRef, str | None]:
    """The one policy, and the model that older spellings name."""
    if options["policy"] and options["untrusted_policy"]:
        raise UsageError("--policy and --untrusted-policy are the same option; give one")
    items = [*options["policy_args"], *options["untrusted_policy_args"]]
    args = parse_key_values(items, "--policy-arg")
    name = options["policy"] or options["untrusted_policy"] or "honest"
    model = None if "model" in policies.get(name).args_model.model_fields else args.pop("model", None)
    if model and options["untrusted_model"]:
        raise UsageError("-p model=... and --untrusted-model are the same option; give one")
    return FunctionRef(name=name, args=args), model or options["untrusted_model"]


def _selection(options: Mapping[str, Any]) -> TaskSelection:
    if options["just_main_tasks"] and options["just_side_tasks"]:
        raise UsageError("give one of --just-main-tasks and --just-side-tasks")
    just = "main" if options["just_main_tasks"] else "side" if options["just_side_tasks"] else None
    return TaskSelection(
        environments=(*options["environments"], *options["environment_alias"]),
        main_tasks=options["main_tasks"],
        side_tasks=options["side_tasks"],
        task_file=options["task_file"],
        from_run=options["from_run"],
        limit=options["limit"],
        expand_all=options["expand_all"],
        just=just,
        env_only=options["env_only"],
        main_tasks_with_no_scorers=options["main_tasks_with_no_scorers"],
        env_args=options["env_args"],
    )


_SHORTHANDS = {
    "epochs": "epochs",
    "max_samples": "max_samples",
    "message_limit": "message_limit",
    "sample_time_limit": "time_limit",
}


def _eval_args(options: Mapping[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for key, text in parse_key_values(options["eval_args"], "--eval-arg").items():
        try:
            args[key] = json.loads(text)
        except ValueError:
            args[key] = text
    for option, key in _SHORTHANDS.items():
        if options[option] is not None:
            if key in args:
                raise UsageError(
                    f"--{option.replace('_', '-')} and --eval-arg {key}=... are the same; give one"
                )
            args[key] = options[option]
    if options["no_fail_on_error"]:
        args.setdefault("fail_on_error", False)
    return check_eval_args(args)


def _announce(plan: RunPlan, note: str | None) -> None:
    """Say on stderr what is about to run."""
    config = plan.config
    roles = ", ".join(f"{role}={spec.full_name}" for role, spec in config.model_roles.items())
    samples = len(plan.samples)
    epochs = f" x {config.epochs} epochs" if config.epochs > 1 else ""
    lines = [
        "Running eval:" if config.kind == "eval" else "Running control eval:",
        *_policy_lines(plan),
        f"  protocol  {plan.protocol.entry.name}",
        f"  models    {roles or 'none (scripted)'}",
        f"  samples   {samples}{epochs}",
        f"  max steps {config.white.max_steps}",
    ]
    lines += [f"  sandbox   {reason}" for reason in dict.fromkeys(c.reason for c in plan.sandboxes.values())]
    if note:
        lines.insert(0, note)
    for env_id in plan.without_simulator():
        lines.append(
            f"  note      {env_id} declares a simulated internet, which there is not: its hosts do not answer"
        )
    click.echo("\n".join(lines), err=True)


def _policy_lines(plan: RunPlan) -> list[str]:
    names = {stream: side.entry.name for stream, side in plan.policies.items()}
    if plan.config.kind == "eval":
        return [f"  policy    {names['honest']}"]
    return [f"  honest    {names['honest']}", f"  attack    {names['attack']}"]


def _smoke(plan: RunPlan) -> RunPlan:
    """Check everything and cut the plan down to one sample of each stream.

    Raises:
        StateError: a check failed; all failures are in the message.
    """
    failed: list[str] = []
    for check in checks(plan):
        click.echo(f"  {'FAIL' if check.problem else 'ok  '} {check.name}: {check.detail}", err=True)
        if check.problem:
            failed.append(f"{check.name}: {check.detail}")
    if failed:
        raise StateError("the smoke test failed: " + "; ".join(failed))
    return plan.one_of_each_stream()


def as_json(played: Played) -> dict[str, Any]:
    """What `--format json` prints of a run."""
    replay = {} if played.comparison is None else {"replay": played.comparison.as_json()}
    fleet = {} if played.fleet is None else {"fleet": played.fleet.as_json()}
    return plain({**played.run.results.as_json(), **replay, **fleet})


def as_table(played: Played) -> str:
    """What is printed of a run for a person."""
    replay = played.comparison.lines() if played.comparison else ()
    return write_lines([*result_lines(played.run.results, played.run.unpriced), *replay])


def inspect_command() -> str:
    """Inspect's command as the user can type it here."""
    beside = Path(sys.executable).with_name("inspect")
    if shutil.which("inspect") or not beside.is_file():
        return "inspect"
    return shlex.quote(str(from_here(beside)))


def check_finished(run: LocalRun) -> None:
    """Refuse to call a run done that is not.

    Raises:
        OperationError: samples errored or are missing.
        Interrupted: the user stopped it.
    """
    results = run.results
    if results.all_errored:
        raise OperationError(f"all {results.samples} samples errored: {'; '.join(results.errors[:3])}")
    if results.status == "cancelled":
        raise Interrupted
    if results.status != "success":
        raise OperationError(
            f"{results.errored} samples errored and {results.missing} are missing; "
            f"to play them again: the same command with --resume {shlex.quote(str(results.log))}"
        )
