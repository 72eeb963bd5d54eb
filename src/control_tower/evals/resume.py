"""Resuming an unfinished log: play only what it lacks, then merge both into a new log."""

from pathlib import Path

from control_tower.errors import StateError
from control_tower.evals.local import LocalRun
from control_tower.evals.plan import RunPlan


def resume_run(plan: RunPlan, log_dir: Path, log: Path | None) -> LocalRun:
    """Play what an unfinished log lacks."""
    raise StateError("not yet")
