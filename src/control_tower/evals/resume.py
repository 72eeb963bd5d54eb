"""Resuming an unfinished log: play only what it lacks, then merge the attempts into a new log."""

import sys
from pathlib import Path

from control_tower.errors import StateError
from control_tower.evals.local import LocalRun, results_of, run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.secret_names import mask_secrets
from control_tower.logs.merge import merge, merged_path
from control_tower.logs.resume import Resumable, find_resumable, resumable


def resume_run(plan: RunPlan, log_dir: Path, log: Path | None) -> LocalRun:
    """Play the sample-epochs that an unfinished run lacks, has errored or has unscored.

    Args:
        plan: the run, as it was configured the first time.
        log_dir: where logs of it are looked for.
        log: the log to go on from; the newest unfinished one of this run when None.

    Returns:
        The results of the merged log, which holds every sample of the run.

    Raises:
        StateError: nothing is left to play, the log is of another run, or that run still goes on.
    """
    found = _found(plan, log_dir, log)
    _check_samples(plan, found)
    wanted = [(str(ident), epoch) for ident, epoch in found.to_run]
    first = found.logs[0]
    if not wanted and len(found.logs) == 1:
        raise StateError(f"{first} has every sample, scored; to run it again leave --resume out")
    counts = ", ".join(f"{count} {state.value}" for state, count in found.counts.items() if count)
    print(f"Resuming {first}: {counts}; {len(wanted)} to play", file=sys.stderr)
    if not wanted:
        return _merged(plan, list(found.logs), [])
    run = run_local(plan.resuming(found.marker), first.parent, only=wanted)
    return _merged(plan, [*found.logs, run.results.log], run.unpriced)


def _found(plan: RunPlan, log_dir: Path, log: Path | None) -> Resumable:
    fingerprint = plan.fingerprint or ""
    if log is not None:
        return resumable(log, fingerprint)
    found = find_resumable(log_dir, fingerprint)
    if found is None:
        raise StateError(f"no unfinished log of this run in {log_dir}; run it without --resume")
    return found


def _check_samples(plan: RunPlan, found: Resumable) -> None:
    """Refuse a log whose samples are not those of the run, since a task set or a setting has changed."""
    logged = {(str(record.id), record.epoch) for record in found.records}
    planned = {(sample.id, epoch + 1) for sample in plan.samples for epoch in range(plan.config.epochs)}
    if logged != planned:
        changed = ", ".join(sorted({ident for ident, _ in logged ^ planned})[:3])
        raise StateError(
            f"{found.logs[0]} is of other samples than this run now has ({changed}): "
            "tasks were added or removed since; run it without --resume"
        )


def _merged(plan: RunPlan, logs: list[Path], unpriced: list[str]) -> LocalRun:
    merged = merge(logs, merged_path(logs))
    # The log of the run that was killed may hold some.
    mask_secrets(plan, merged.path)
    return LocalRun(results_of(plan, merged.path), unpriced)
