"""Progress of a run on stderr: one line a finished sample, or a bar where a person watches."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from inspect_ai.hooks import Hooks, SampleEnd, hooks
from inspect_ai.log import EvalSample
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from control_tower.config import redact
from control_tower.errors import on_one_line
from control_tower.records.scores import TASKS_SCORE


class _Reporter:
    def __init__(self, total: int, line: Callable[[EvalSample], str]) -> None:
        self.total = total
        self.line = line
        self.done = 0
        self.errored = 0

    def sample_ended(self, sample: EvalSample) -> None:
        self.done += 1
        self.errored += sample.error is not None
        self.show(redact(f"[{self.done}/{self.total}] {self.line(sample)}"))

    def show(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Bar(_Reporter):
    def __init__(self, total: int, line: Callable[[EvalSample], str], progress: Progress) -> None:
        super().__init__(total, line)
        self._progress = progress
        self._task = progress.add_task("samples", total=total, errored=0)

    def show(self, line: str) -> None:
        self._progress.update(self._task, completed=self.done, errored=self.errored)
        self._progress.console.print(line, highlight=False, markup=False)


_current: _Reporter | None = None


@hooks(name="ct_progress", description="Shows the progress of ct run.")  # pyright: ignore[reportUntypedClassDecorator]
class ProgressHooks(Hooks):
    """Tells the running reporter of each finished sample."""

    def enabled(self) -> bool:
        return _current is not None

    async def on_sample_end(self, data: SampleEnd) -> None:
        if _current is not None:
            _current.sample_ended(data.sample)


def played_line(sample: EvalSample) -> str:
    """What came of a sample that was played."""
    return f"{sample.id} epoch {sample.epoch}: {failure_of(sample) or _verdict(sample)}"


def failure_of(sample: EvalSample) -> str | None:
    """Why a sample did not finish; None when it did."""
    if sample.error is None:
        return None
    if sample.error.message.startswith("CancelledError"):
        return "interrupted"
    return "error: " + on_one_line(sample.error.message)


@contextmanager
def show_progress(total: int, line: Callable[[EvalSample], str] = played_line) -> Generator[None]:
    """Show the samples of a run as they finish.

    Args:
        total: sample-epochs that will run.
        line: what is said of a finished one.
    """
    global _current
    if not sys.stderr.isatty():
        _current = _Reporter(total, line)
        try:
            yield
        finally:
            _current = None
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("samples"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[errored]} errored"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        _current = _Bar(total, line, progress)
        try:
            yield
        finally:
            _current = None


def _verdict(sample: EvalSample) -> str:
    tasks = (sample.scores or {}).get(TASKS_SCORE)
    value = cast(dict[str, Any], tasks.value) if tasks is not None else {}
    shown = [f"{role} {value[role]:g}" for role in ("main", "side") if value.get(role) is not None]
    reasons = {score.reason for score in (sample.scores or {}).values() if score.reason}
    faults = f" ({', '.join(sorted(reasons))})" if reasons else ""
    return (", ".join(shown) or "unscored") + faults
