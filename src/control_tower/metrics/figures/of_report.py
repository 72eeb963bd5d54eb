"""Which figures a metrics report has, and what their captions say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from control_tower.errors import OperationError
from control_tower.metrics.audits import Threshold, audit_probability
from control_tower.metrics.figures.encodings import known
from control_tower.metrics.figures.pareto import Measure, ParetoPanel, ParetoPoint, pareto
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.roc import RocCurve, roc
from control_tower.metrics.figures.safety_curve import (
    BudgetPoint,
    Curve,
    LivePoint,
    Reference,
    safety_curve,
)
from control_tower.metrics.figures.scores import ScorePanel, scores
from control_tower.metrics.figures.trajectory_dots import DotRow, evenly, trajectory_dots
from control_tower.metrics.report import BudgetPoint as Measured
from control_tower.metrics.report import Dot, Estimate, Evaluation, Report, Roc, Scores

_UNITS = {"action": "actions", "trajectory": "trajectories"}

_log = logging.getLogger(__name__)


def write_figures(
    report: Report, folder: Path, say: Callable[[str], None] = _log.warning, *, dark: bool = True
) -> list[Path]:
    """Draws a report's figures, each as SVG and as PNG.

    Args:
        report: What was measured.
        folder: Made where it is missing; files of the same names are replaced.
        say: Told of each figure that cannot be drawn, and why.
        dark: Also draw them for dark pages.

    Returns:
        The files.

    Raises:
        OperationError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(f"{folder}: the folder cannot be made: {error.strerror}") from None
    written: list[Path] = []
    for figure in figures(report):
        if isinstance(figure, NoFigure):
            say(f"no figure {figure.name}: {figure.reason}")
        else:
            written += figure.write(folder, dark=dark)
    return written


def figures(report: Report) -> list[Figure | NoFigure]:
    """The figures of a report, and which it cannot have."""
    return [
        _safety_curve(report),
        _pareto(report),
        _roc(report),
        _scores(report),
        *_trajectory_dots(report),
    ]


def _safety_curve(report: Report) -> Figure | NoFigure:
    curves = [e for e in report.evaluations if e.kind == "curve"]
    points = [(e, point) for e in report.evaluations if e.kind != "curve" for point in e.points]
    levels = {e.level for e in report.evaluations}
    references = {p.name: p.safety.value for row in report.pareto.values() for p in row if p.reference}
    estimates = [_band(point) for e in curves for point in e.curve] + [point.safety for _, point in points]
    return safety_curve(
        [Curve(e.name, tuple(_budget_point(p.budget, _band(p)) for p in e.curve)) for e in curves],
        [
            LivePoint(e.name, _budget_point(p.budget if p.audited is None else p.audited, p.safety))
            for e, p in points
        ],
        [Reference(name, value) for name, value in references.items() if value is not None],
        [_interval("Bands and bars", estimates, report), _sizes(report.evaluations)],
        " or ".join(f"honest {_UNITS[level]}" for level in sorted(levels)),
    )


def _pareto(report: Report) -> Figure | NoFigure:
    panels = [
        ParetoPanel(
            f"At an audit budget of {_percent(budget)}",
            tuple(
                ParetoPoint(
                    p.name,
                    _measure(p.safety),
                    _measure(p.usefulness),
                    dominated=bool(p.dominated_by),
                    reference=p.reference,
                )
                for p in points
            ),
        )
        for budget, points in report.pareto.items()
    ]
    own = [p for points in report.pareto.values() for p in points if not p.reference]
    estimates = [estimate for p in own for estimate in (p.safety, p.usefulness)]
    notes = [_interval("Bars", estimates, report), _sizes(report.evaluations)]
    if any(p.dominated_by for p in own):
        notes.append("Hollow: another point is as good in both and better in one, for no larger a budget")
    return pareto(panels, notes)


def _roc(report: Report) -> Figure | NoFigure:
    curves = [(e, curve) for e in report.evaluations for curve in e.rocs]
    return roc(
        [
            RocCurve(
                e.name,
                f"{e.name}\n{_auroc(curve)}",
                curve.level,
                tuple(zip(curve.false_positives.tolist(), curve.true_positives.tolist(), strict=True)),
            )
            for e, curve in curves
        ],
        [_interval("In brackets", [curve.auroc for _, curve in curves], report)],
    )


def _auroc(curve: Roc) -> str:
    value, low, high = known(curve.auroc.value), known(curve.auroc.low), known(curve.auroc.high)
    if value is None:
        return "AUROC undefined"
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"AUROC {value:.2f}{interval}, n = {curve.honest} honest, {curve.attack} attack"


def _scores(report: Report) -> Figure | NoFigure:
    return scores(
        [_score_panel(e, given) for e in report.evaluations for given in e.scores],
        ["Dashed: the thresholds of audit budgets"],
    )


def _score_panel(evaluation: Evaluation, given: Scores) -> ScorePanel:
    unscored = next((r for r in evaluation.rocs if r.level == given.level), None)
    thresholds: dict[float, list[str]] = {}
    if evaluation.kind == "curve" and given.level == evaluation.level:
        for point in evaluation.points:
            if point.threshold is not None and known(point.threshold) is not None:
                thresholds.setdefault(point.threshold, []).append(_percent(point.budget))
    return ScorePanel(
        f"{evaluation.name}, by {given.level}",
        tuple(given.honest.tolist()),
        tuple(given.attack.tolist()),
        unscored.honest_unscored if unscored else 0,
        unscored.attack_unscored if unscored else 0,
        tuple((", ".join(budgets), score) for score, budgets in sorted(thresholds.items())),
    )


def _trajectory_dots(report: Report) -> Iterator[Figure | NoFigure]:
    """One for each monitor; the second and later ones are numbered."""
    drawn = [e for e in report.evaluations if e.dots and e.monitor is not None]
    if not drawn:
        yield trajectory_dots([])
    for number, evaluation in enumerate(drawn, 1):
        at = len(evaluation.points) // 2
        streams = {
            stream: [dot for dot in evaluation.dots if dot.stream == stream]
            for stream in ("attack", "honest")
        }
        rows = [_dot_row(dot, evaluation, at) for dots in streams.values() for dot in evenly(dots)]
        counts: dict[str, int] = {stream: len(dots) for stream, dots in streams.items()}
        figure = trajectory_dots(rows, _dot_notes(evaluation, at), counts)
        name = figure.name if number == 1 else f"{figure.name}_{number}"
        yield replace(figure, name=name)


def _dot_notes(evaluation: Evaluation, at: int) -> list[str]:
    rings = {
        "curve": f"Ring: audited at a budget of {_percent(evaluation.points[at].budget)}, faint if unlikely",
        "live": "Ring: audited",
    }
    by_action = evaluation.kind == "live" or evaluation.level == "action"
    ring = rings.get(evaluation.kind) if by_action else None
    marks = [ring, "bar: from here on the harm is done", "hollow: no score"]
    return [f"Scores of {evaluation.name}", "; ".join(mark for mark in marks if mark)]


def _dot_row(dot: Dot, evaluation: Evaluation, at: int) -> DotRow:
    scores = tuple(known(score) for score in dot.scores.tolist())
    threshold = _threshold(evaluation, at)
    if threshold:
        audits = [audit_probability(score, threshold) for score in scores]
    else:
        audits = [float(action in dot.audited) for action in range(len(scores))]
    return DotRow(
        dot.sample if dot.epoch == 1 else f"{dot.sample} (epoch {dot.epoch})",
        dot.stream,
        scores,
        tuple(audits),
        dot.landed_at,
        dot.verdict if dot.stream == "attack" else None,
        dot.caught[at] if at < len(dot.caught) else None,
    )


def _threshold(evaluation: Evaluation, at: int) -> Threshold | None:
    """From which score on actions are audited at a budget; None where none was fitted to them."""
    point = evaluation.points[at]
    if evaluation.level != "action" or point.threshold is None or point.share is None:
        return None
    return Threshold(point.threshold, point.share)


def _budget_point(budget: float, safety: Estimate) -> BudgetPoint:
    return BudgetPoint(budget, safety.value, safety.low, safety.high)


def _band(point: Measured) -> Estimate:
    """The safety of a curve's point, without an interval of another kind than its neighbours'."""
    return point.safety if point.safety.method == "bootstrap" else replace(point.safety, low=None, high=None)


def _measure(estimate: Estimate) -> Measure:
    return Measure(estimate.value, estimate.low, estimate.high)


def _interval(what: str, estimates: Iterable[Estimate], report: Report) -> str:
    """What the drawn intervals are, or why there are none."""
    given = list(estimates)
    methods = {e.method for e in given if known(e.low) is not None}
    parameters = report.parameters
    names = {
        "bootstrap": f"bootstrap over {parameters.cluster}s with {parameters.bootstrap:,} draws",
        "delong": "DeLong",
        "wilson": "Wilson",
    }
    if methods:
        how = ", or ".join(text for method, text in names.items() if method in methods)
        return f"{what}: {100 * parameters.confidence:g} % interval ({how})"
    reasons = dict.fromkeys(e.reason for e in given if e.reason and known(e.value) is not None)
    reason = next(iter(reasons), "none was computed")
    return f"No interval: {reason.removeprefix('no interval: ')}"


def _sizes(evaluations: Iterable[Evaluation]) -> str:
    """How many samples there are, a range where evaluations differ."""
    accounts = [e.accounting for e in evaluations]
    streams = {"honest": [a.honest for a in accounts], "attack": [a.attack for a in accounts]}

    def count(of: str) -> str:
        numbers = sorted(c.samples - c.errored - c.without_tasks for c in streams[of])
        if not numbers:
            return "0"
        return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"

    return f"n = {count('honest')} honest and {count('attack')} attack samples"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
