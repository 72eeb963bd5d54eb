"""Safety against the audit budget: a curve with its band for each monitor, live protocols as points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_tower.metrics.figures.encodings import (
    LINE_SYMBOL,
    PERCENT,
    coloured,
    dashed,
    known,
    shaped,
    share_axis,
)
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.theme import Spec

NAME = "safety_curve"
LINEAR_BELOW = 0.001
"""The budget axis is logarithmic above this, so that a budget of 0 has a place on it."""

_TICKS = [0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1]


@dataclass(frozen=True)
class BudgetPoint:
    """Safety at one audit budget, both from 0 to 1."""

    budget: float
    safety: float | None
    """None or NaN where it is undefined: the curve has a gap."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """A monitor's safety over budgets."""

    name: str
    points: tuple[BudgetPoint, ...]


@dataclass(frozen=True)
class LivePoint:
    """What a protocol that audited while it ran reached, with its intervals."""

    name: str
    at: BudgetPoint
    budget_low: float | None = None
    budget_high: float | None = None


@dataclass(frozen=True)
class Reference:
    """A level to compare with, drawn as a line across."""

    name: str
    safety: float


def safety_curve(
    curves: Sequence[Curve],
    live: Sequence[LivePoint] = (),
    references: Sequence[Reference] = (),
    notes: Sequence[str] = (),
    audited: str = "honest actions",
) -> Figure | NoFigure:
    """The figure.

    Args:
        curves: One a monitor, each with ascending budgets.
        live: Protocols with live audits.
        references: Lines across.
        notes: What the intervals are and how many samples there were, under the title.
        audited: What the budget is a share of.
    """
    curves = [c for c in curves if any(known(p.safety) is not None for p in c.points)]
    live = [p for p in live if known(p.at.safety) is not None]
    if not curves and not live:
        return NoFigure(NAME, "safety is undefined at every audit budget")
    names = [c.name for c in curves] + [p.name for p in live]
    axes = _axes(audited)
    groups = [
        {"layer": layers} for layers in (_curves(curves, names, axes), _live(live, names, axes)) if layers
    ]
    spec: Spec = {
        "width": 520,
        "height": 320,
        "title": {"text": "Safety against audit budget", "subtitle": list(notes)},
        "layer": [
            *(_reference(reference, axes) for reference in references),
            *groups,
        ],
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
    }
    return Figure(NAME, spec)


def _axes(audited: str) -> Spec:
    return {
        "x": {
            "field": "budget",
            "type": "quantitative",
            "title": f"Audit budget: {audited} audited (logarithmic above 0.1 %)",
            "scale": {"type": "symlog", "constant": LINEAR_BELOW, "domain": [0, 1], "nice": False},
            "axis": {"values": _TICKS, "labelExpr": PERCENT},
        },
        "y": share_axis("safety", "Safety"),
    }


def _curves(curves: Sequence[Curve], names: Sequence[str], axes: Spec) -> list[Spec]:
    rows = [
        {"name": curve.name, **_row(point), "alone": _alone(curve.points, at)}
        for curve in curves
        for at, point in enumerate(curve.points)
    ]
    if not rows:
        return []
    legend = {"values": [curve.name for curve in curves], "symbolSize": LINE_SYMBOL}
    colour = coloured(names, legend)
    band: Spec = {
        "x": axes["x"],
        "y": {**axes["y"], "field": "low"},
        "y2": {"field": "high"},
        "fill": {**colour, "legend": None},
    }
    opacity = 0.18 if len(curves) <= 3 else 0.07
    return [
        {"data": {"values": rows}, "mark": {"type": "area", "opacity": opacity}, "encoding": band},
        {
            "data": {"values": rows},
            "mark": {"type": "line"},
            "encoding": {**axes, "color": colour, "strokeDash": dashed(names, legend)},
        },
        {
            "data": {"values": [row for row in rows if row["alone"]]},
            "mark": {"type": "circle", "size": 36, "opacity": 1},
            "encoding": {"x": axes["x"], "y": axes["y"], "fill": {**colour, "legend": None}},
        },
    ]


def _live(live: Sequence[LivePoint], names: Sequence[str], axes: Spec) -> list[Spec]:
    rows = [
        {"name": p.name, **_row(p.at), "left": known(p.budget_low), "right": known(p.budget_high)}
        for p in live
    ]
    if not rows:
        return []
    legend = {"values": [p.name for p in live]}
    colour = coloured(names, legend)
    upright = {"x": axes["x"], "y": {**axes["y"], "field": "low"}, "y2": {"field": "high"}, "color": colour}
    across = {"y": axes["y"], "x": {**axes["x"], "field": "left"}, "x2": {"field": "right"}, "color": colour}
    bar = {"type": "rule", "strokeWidth": 1.5}
    return [
        {"data": {"values": rows}, "mark": bar, "encoding": upright},
        {"data": {"values": rows}, "mark": bar, "encoding": across},
        {
            "data": {"values": rows},
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {**axes, "color": colour, "shape": shaped(names, legend)},
        },
    ]


def _reference(reference: Reference, axes: Spec) -> Spec:
    y = {**axes["y"], "field": "safety"}
    return {
        "data": {"values": [{"safety": reference.safety, "text": reference.name}]},
        "layer": [
            {"mark": {"type": "rule", "style": "reference"}, "encoding": {"y": y}},
            {
                "mark": {"type": "text", "style": "reference-label", "align": "left", "dx": 4},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text"}},
            },
        ],
    }


def _row(point: BudgetPoint) -> Spec:
    return {
        "budget": point.budget,
        "safety": known(point.safety),
        "low": known(point.low),
        "high": known(point.high),
    }


def _alone(points: Sequence[BudgetPoint], at: int) -> bool:
    """Whether a point has no neighbour to draw a line to."""
    near = points[max(at - 1, 0) : at + 2]
    return known(points[at].safety) is not None and sum(known(p.safety) is not None for p in near) == 1
