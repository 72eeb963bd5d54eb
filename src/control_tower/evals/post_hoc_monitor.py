"""Monitors over a finished log: their verdicts go into a copy, beside those there were; the source stays.

The judging is a run of Inspect of its own, in a folder that is deleted afterwards. Each verdict is kept at
once, so that after a crash, or for a second copy, only what is missing is asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inspect_ai import Task
from inspect_ai import eval as inspect_eval  # pyright: ignore[reportUnknownVariableType]
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalSample
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import span

from control_tower import config as configuration
from control_tower.errors import Interrupted, OperationError, StateError, ValidationError, on_one_line
from control_tower.evals.copies import is_copy_of
from control_tower.evals.judged import Judged, Kind, judged_of
from control_tower.evals.monitored_copy import Copy, write_copy
from control_tower.evals.progress import failure_of, show_progress
from control_tower.inspect_private import gather, load_hooks_quietly
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.monitored import ITEMS
from control_tower.logs.recordings import check_format
from control_tower.models.roles import RoleSpec, make_models
from control_tower.monitors.config import Monitor
from control_tower.monitors.monitor import MonitorInputs
from control_tower.monitors.panel import Panel
from control_tower.monitors.verdict_cache import VerdictCache
from control_tower.records.monitor_scores import MonitorEntry, MonitorKey
from control_tower.records.scores import MONITOR_SCORE

DEFAULT_SAVE_DIR = Path("data/monitoring")
SUFFIX = ".monitored.eval"

_AT_ONCE: Mapping[Kind, int] = {"action": 1, "trajectory": 8}
"""Samples judged at the same time; all actions of one are."""


@dataclass(frozen=True)
class Judging:
    """What is to be judged, checked: nothing was asked yet."""

    base: Path
    """The log whose samples are judged: the source, or the copy that is extended."""
    target: Path
    source_name: str
    monitors: Sequence[Monitor]
    kind: Kind
    keys: tuple[SampleKey, ...]
    eval_id: str

    def judged(self, key: SampleKey) -> tuple[list[Judged], MonitorInputs]:
        """What is judged of a sample of the base, and what monitors may know besides.

        Raises:
            ValidationError: the sample holds something that cannot be shown to monitors.
        """
        with EvalArchive.open(self.base) as archive:
            return judged_of(self.base, archive.sample(key), self.kind)


@dataclass(frozen=True)
class MonitoredLog:
    """A copy of a log with further verdicts."""

    path: Path
    verdicts: int
    unscored: int
    kept: int
    """Verdicts that were not asked for, since they were kept from earlier."""
    reasons: tuple[str, ...]
    """Why verdicts are unscored, each once."""

    def as_json(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return {
            "log": str(self.path),
            "verdicts": self.verdicts,
            "unscored": self.unscored,
            "kept": self.kept,
            "reasons": list(self.reasons),
        }


def plan_judging(
    source: Path, monitors: Sequence[Monitor], kind: Kind = "action", save_dir: Path = DEFAULT_SAVE_DIR
) -> Judging:
    """Check that monitors can judge a log, and where the copy goes.

    Raises:
        StateError: there is no such log, or it is not finished.
        ValidationError: it is of another format, a monitor's name is taken or its kind does not fit, or the
            copy's place is taken by that of another log.
    """
    for monitor in monitors:
        if kind == "trajectory" and monitor.kind == "action":
            raise ValidationError(
                f"monitor {monitor.name!r} judges actions: leave out --kind trajectory, or name one that "
                "judges whole trajectories, such as trajectory or quick"
            )
        if kind == "action" and monitor.kind == "trajectory":
            raise ValidationError(
                f"monitor {monitor.name!r} judges whole trajectories: give --kind trajectory, or name one "
                "that judges actions, such as simple"
            )
    header = _header(source)
    if _is_copy(header):
        base = target = source
    else:
        target = save_dir / (re.sub(r"[^A-Za-z0-9_-]", "-", source.stem) + SUFFIX)
        base = _extended(target, header, source) or source
    with EvalArchive.open(base) as archive:
        rows = archive.summaries()
        keys = tuple(archive.sample_keys())
    known = {MonitorKey.parse(key).monitor for row in rows for key in _verdicts(row)}
    if taken := [monitor for monitor in monitors if monitor.name in known]:
        one, names = taken[0], ", ".join(monitor.name for monitor in taken)
        key, ref = ("prompt", one.prompt) if one.prompt else ("monitor", one.monitor)
        raise ValidationError(
            f"{base}: has verdicts of {names} already; give the monitor another name, such as "
            f"-m '[{{{key}: {ref}, name: {one.name}-2}}]'"
        )
    if not keys:
        raise ValidationError(f"{base}: has no samples")
    return Judging(base, target, source.name, tuple(monitors), kind, keys, str(header["eval"].get("eval_id")))


def run_judging(judging: Judging, roles: Mapping[str, RoleSpec]) -> MonitoredLog:
    """Ask the monitors and write the copy.

    Args:
        judging: from `plan_judging`.
        roles: the models of the roles that the monitors ask.

    Raises:
        StateError: a model cannot be made.
        OperationError: a sample could not be judged, or the copy cannot be written; verdicts are kept.
        Interrupted: the user stopped it; verdicts are kept, where the monitor's text or code has a hash.
    """
    load_hooks_quietly()
    models = make_models(roles)
    kept = verdict_cache(judging, roles)
    with TemporaryDirectory(prefix="ct-monitor-") as folder:
        # stdout is for results alone, and Inspect writes notices to it.
        with show_progress(len(judging.keys), _progress), redirect_stdout(sys.stderr):
            logs = inspect_eval(
                _task(judging, kept),
                model=None,
                model_roles=dict(models),
                log_dir=folder,
                log_format="eval",
                log_header_only=True,
                log_buffer=1,
                fail_on_error=False,
                max_samples=int(configuration.get("max_samples") or _AT_ONCE[judging.kind]),
                display="none",
                ctl_server=False,
                score_display=False,
            )
        if not logs or logs[0].status == "cancelled":
            raise Interrupted(f"interrupted; {_kept(judging)}")
        record = Path(logs[0].location.removeprefix("file://"))
        _check(record, judging)
        names = {role: spec.full_name for role, spec in roles.items()}
        about = Copy(judging.source_name, judging.monitors, judging.kind, names)
        ids = {key: _sample_id(key) for key in judging.keys}
        copy = write_copy(judging.base, judging.target, record, ids, about)
    return MonitoredLog(judging.target, copy.verdicts, copy.unscored, copy.kept, copy.reasons)


def verdict_cache(judging: Judging, roles: Mapping[str, RoleSpec]) -> VerdictCache:
    """The verdicts kept for a log."""
    path = configuration.cache_dir() / "monitor_verdicts" / f"{judging.eval_id}.jsonl"
    return VerdictCache(path, {role: spec.model_dump(mode="json") for role, spec in roles.items()})


def _task(judging: Judging, kept: VerdictCache) -> Task:
    by_id = {_sample_id(key): key for key in judging.keys}

    @solver(name="monitors")
    def monitors() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            judged, inputs = judging.judged(by_id[str(state.sample_id)])
            panel = Panel(judging.monitors, kept=kept)
            await gather([partial(_judge, panel, one, inputs) for one in judged])
            return state

        return solve

    samples = MemoryDataset([Sample(id=name, input="") for name in by_id])
    return Task(dataset=samples, solver=monitors(), name="monitor")


async def _judge(panel: Panel, judged: Judged, inputs: MonitorInputs) -> None:
    async with span(judged.scope, type="ct_scope"):
        await panel.judge(judged.messages, inputs, None if judged.index is None else str(judged.index))


def _check(record: Path, judging: Judging) -> None:
    """Refuse to write a copy that lacks what could not be judged for a reason that is no verdict."""
    with EvalArchive.open(record) as archive:
        rows = {str(row["id"]): row for row in archive.summaries()}
    failed = {key: rows.get(_sample_id(key), {"error": "it was not judged"}) for key in judging.keys}
    errors = [(key, str(row["error"])) for key, row in failed.items() if row.get("error")]
    if errors:
        key, error = errors[0]
        raise OperationError(
            f"{len(errors)} of {len(judging.keys)} samples could not be judged, such as {key}: "
            f"{on_one_line(error)}; {_kept(judging)}"
        )


def _kept(judging: Judging) -> str:
    """What the same command need not ask for again, for a message."""
    lost = [monitor.name for monitor in judging.monitors if monitor.source["sha256"] is None]
    but = f", but not those of {', '.join(lost)}, whose code has no hash" if lost else ""
    return f"verdicts are kept{but}: the same command asks only for the others"


def _progress(sample: EvalSample) -> str:
    items = [MonitorEntry.from_json(item) for item in sample.store.get(ITEMS, [])]
    unscored = sum(item.value is None for item in items)
    verdicts = f"{len(items)} verdicts" + (f", {unscored} unscored" if unscored else "")
    return f"{sample.id}: {failure_of(sample) or verdicts}"


def _sample_id(key: SampleKey) -> str:
    return f"{key.id} epoch {key.epoch}"


def _header(path: Path) -> JsonObject:
    with EvalArchive.open(path) as archive:
        header = archive.header()
        check_format(path, header)
        if not archive.finished:
            raise StateError(f"{path}: was not finished; go on with its run by --resume first")
    return header


def _is_copy(header: JsonObject) -> bool:
    """Whether a log is a copy that monitors were added to."""
    scorers = (s for s in children(header["eval"], "scorers") if s.get("name") == MONITOR_SCORE)
    return any("kind" in child(scorer, "options") for scorer in scorers)


def _extended(target: Path, header: JsonObject, source: Path) -> Path | None:
    """The copy that is there already, if it is one of this log.

    Raises:
        ValidationError: it is of another.
    """
    if not target.exists():
        return None
    there = _header(target)
    if not is_copy_of(there, header, source):
        raise ValidationError(f"{target}: is a copy of another log; choose another --save-dir")
    return target


def _verdicts(row: JsonObject) -> Iterator[str]:
    yield from child(child(child(row, "scores"), MONITOR_SCORE), "value")
