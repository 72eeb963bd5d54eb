"""The folder of a report: `metrics.json`, tables as CSV, `summary.md`, and the figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from control_tower.errors import OperationError
from control_tower.metrics.document import document_text
from control_tower.metrics.figures import write_figures
from control_tower.metrics.report import Report
from control_tower.metrics.summary import markdown

CURVE = (
    "evaluation", "protocol", "monitor", "level", "kind", "budget", "threshold", "share", "tied", "audited",
    "safety", "low", "high", "worst", "exact",
)  # fmt: skip
TRAJECTORIES = (
    "evaluation", "sample", "epoch", "stream", "environment", "actions", "score", "at", "verdict",
    "landed_at", "budget", "caught",
)  # fmt: skip


def write_report(
    report: Report, folder: Path, say: Callable[[str], None], *, dark: bool = True
) -> list[Path]:
    """Write a report.

    Args:
        report: What was measured.
        folder: Made where it is missing; files of the same names are replaced.
        say: Told of each figure that cannot be drawn, and why.
        dark: Also draw figures for dark pages.

    Returns:
        The files, those that are read first before the figures.

    Raises:
        OperationError: The folder cannot be written.
    """
    texts = {
        "metrics.json": document_text(report),
        "summary.md": markdown(report),
        "safety_curve.csv": _csv(CURVE, _curve_rows(report)),
        "trajectories.csv": _csv(TRAJECTORIES, _trajectory_rows(report)),
    }
    written: list[Path] = []
    for name, text in texts.items():
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise OperationError(f"{path}: cannot be written: {error.strerror}") from None
        written.append(path)
    return [*written, *write_figures(report, folder, say, dark=dark)]


def _curve_rows(report: Report) -> Iterable[Sequence[Any]]:
    for evaluation in report.evaluations:
        about = evaluation.name, evaluation.protocol, evaluation.monitor, evaluation.level, evaluation.kind
        for point in evaluation.curve or evaluation.points:
            safety = point.safety
            yield (
                *about, point.budget, point.threshold, point.share, point.tied, point.audited,
                safety.value, safety.low, safety.high, safety.worst, point.exact,
            )  # fmt: skip


def _trajectory_rows(report: Report) -> Iterable[Sequence[Any]]:
    """A row for each trajectory; for an attack one for each budget."""
    for evaluation in report.evaluations:
        budgets = [point.budget for point in evaluation.points]
        for dot in evaluation.dots:
            about = (
                evaluation.name, dot.sample, dot.epoch, dot.stream, dot.environment, dot.actions,
                dot.score, dot.at, dot.verdict, dot.landed_at,
            )  # fmt: skip
            if not dot.caught:
                yield (*about, None, None)
            for budget, caught in zip(budgets, dot.caught, strict=False):
                yield (*about, budget, caught)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; what is unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_value(cell) for cell in row] for row in rows)
    return text.getvalue()


def _value(cell: Any) -> Any:
    if isinstance(cell, bool):
        return str(cell).lower()
    return f"{cell:.10g}" if isinstance(cell, float) else cell
