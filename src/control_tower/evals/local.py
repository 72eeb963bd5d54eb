"""Running a plan on this machine, and resuming an unfinished log."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from control_tower import config as configuration
from control_tower.errors import Interrupted, OperationError, UsageError, did_you_mean
from control_tower.evals.plan import RunPlan
from control_tower.evals.results import Results, read_results
from control_tower.evals.secret_names import mask_secrets
from control_tower.inspect_private import load_hooks_quietly
from control_tower.models.cost import allow_cost_limit, unpriced
from control_tower.models.roles import make_models

SampleEpoch = tuple[str, int]

_OURS = frozenset(
    {
        "limit",
        "sample_id",
        "sample_shuffle",
        "log_buffer",
        "log_samples",
        "score_display",
        "approval",
        "review",
    }
    | {"sentinel", "acp_server", "notification", "max_tasks"}
)
"""EvalConfig fields that a run sets itself, or that would take samples or scores out of its log."""


def eval_arg_names() -> list[str]:
    """The EvalConfig fields that `--eval-arg` may set."""
    import inspect

    from inspect_ai import eval as inspect_eval  # pyright: ignore[reportUnknownVariableType]
    from inspect_ai.log import EvalConfig

    accepted = inspect.signature(cast(Callable[..., Any], inspect_eval)).parameters
    return sorted(set(EvalConfig.model_fields) & set(accepted) - _OURS)


def check_eval_args(args: dict[str, Any]) -> dict[str, Any]:
    """Read `--eval-arg` values by the types of Inspect's EvalConfig.

    Raises:
        UsageError: an unknown key, with the nearest one, or a value of the wrong type.
    """
    from inspect_ai.log import EvalConfig
    from pydantic import ValidationError

    known = eval_arg_names()
    for key in args:
        if key not in known:
            raise UsageError(f"--eval-arg {key!r} is not one that a run takes{did_you_mean(key, known)}")
        counts = key == "epochs" or key.endswith("_limit") or key.startswith("max_")
        if counts and isinstance(args[key], int | float) and args[key] <= 0:
            raise UsageError(f"--eval-arg {key}={args[key]}: must be more than 0")
    try:
        return EvalConfig.model_validate(args).model_dump(exclude_unset=True, mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--eval-arg {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@dataclass(frozen=True)
class LocalRun:
    """A finished local run."""

    results: Results
    unpriced: list[str]
    """Models that have no price."""


def run_local(plan: RunPlan, log_dir: Path, only: Iterable[SampleEpoch] | None = None) -> LocalRun:
    """Play a plan's samples in this process.

    Args:
        plan: the run.
        log_dir: where the log goes.
        only: the sample-epochs to play; all when None.

    Raises:
        StateError: a model's provider, key or price is missing.
        OperationError: the log cannot be written.
        Interrupted: the user stopped it; what was finished is in the log.
    """
    from inspect_ai import eval as inspect_eval  # pyright: ignore[reportUnknownVariableType]

    from control_tower.evals.inspect_task import control_eval_task, eval_task, prepared
    from control_tower.evals.only import OnlySamples
    from control_tower.evals.progress import show_progress

    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(
            f"cannot write logs to {log_dir}: {error.strerror}; choose another --log-dir"
        ) from error
    load_hooks_quietly()
    models = make_models(plan.config.model_roles)
    without_price = unpriced(spec.full_name for spec in plan.config.model_roles.values())
    if plan.config.eval_args.get("cost_limit") is not None:
        allow_cost_limit(without_price)
    wanted = None if only is None else set(only)
    total = len(plan.samples) * plan.config.epochs if wanted is None else len(wanted)
    with prepared(plan, OnlySamples(wanted) if wanted is not None else None):
        make = eval_task if plan.config.kind == "eval" else control_eval_task
        task = make(**_task_args(plan))
    # stdout is for results alone, and Inspect writes notices to it.
    with show_progress(total), redirect_stdout(sys.stderr):
        logs = inspect_eval(
            task,
            model=None,
            model_roles=dict(models),
            log_dir=str(log_dir),
            log_format="eval",
            log_header_only=True,
            display="none",
            ctl_server=False,
            score_display=False,
            **_eval_args(plan),
        )
    if not logs:
        raise Interrupted
    location = Path(logs[0].location.removeprefix("file://"))
    if not location.exists():
        raise OperationError(f"{location}: the log could not be written; is the disk full?")
    mask_secrets(plan, location)
    return LocalRun(results_of(plan, from_here(location)), without_price)


def from_here(path: Path) -> Path:
    """A path as one types it in the working folder, where it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def results_of(plan: RunPlan, log: Path) -> Results:
    """The results of a log that plays a plan."""
    attacks = [sample.id for sample in plan.samples if sample.tasks.sides]
    return read_results(log, attacks, len(plan.samples) * plan.config.epochs)


def _task_args(plan: RunPlan) -> dict[str, Any]:
    record = plan.config.model_dump(mode="json", exclude={"kind", "eval_args", *plan.config.absent})
    record["model_roles"] = {role: spec.full_name for role, spec in plan.config.model_roles.items()}
    return record


def _eval_args(plan: RunPlan) -> dict[str, Any]:
    configured = configuration.get("max_samples")
    defaults: dict[str, Any] = {
        # Every finished sample is in the log at once, so that a killed run loses none of them.
        "log_buffer": 1,
        # One sample's error is that sample's: the others play on.
        "continue_on_fail": True,
        "fail_on_error": True,
        "max_samples": int(configured) if configured else max(2, os.cpu_count() or 2),
    }
    return {**defaults, **plan.config.eval_args}
