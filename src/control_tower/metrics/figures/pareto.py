"""Usefulness against safety: a point with intervals both ways for each protocol, dominated ones hollow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_tower.metrics.figures.encodings import coloured, known, shaped, share_axis
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.theme import Spec

NAME = "pareto"


@dataclass(frozen=True)
class Measure:
    """A number from 0 to 1 and its interval, where there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ParetoPoint:
    """A protocol, or one budget of it."""

    name: str
    safety: Measure
    usefulness: Measure
    dominated: bool = False
    reference: bool = False
    """Drawn grey and named beside its mark, not in the legend."""


@dataclass(frozen=True)
class ParetoPanel:
    """Points that are compared with each other."""

    title: str
    points: tuple[ParetoPoint, ...]


def pareto(panels: Sequence[ParetoPanel], notes: Sequence[str] = ()) -> Figure | NoFigure:
    """The figure.

    Args:
        panels: One an audit budget. Points without a number for either axis are left out and named below
            the title.
        notes: What the intervals are and how many samples there were.
    """
    drawn = [ParetoPanel(p.title, tuple(filter(_is_drawn, p.points))) for p in panels]
    drawn = [panel for panel in drawn if any(not p.reference for p in panel.points)]
    if not drawn:
        return NoFigure(NAME, "no protocol has both a usefulness and a safety")
    absent = dict.fromkeys(p.name for panel in panels for p in panel.points if not _is_drawn(p))
    lines = [*notes, *([f"Not drawn where a number is missing: {', '.join(absent)}"] if absent else [])]
    names = list(dict.fromkeys(p.name for panel in drawn for p in panel.points if not p.reference))
    spec: Spec = {
        "title": {"text": "Usefulness against safety", "subtitle": lines},
        "columns": 1 if len(drawn) == 1 else 2 if len(drawn) in (2, 4) else 3,
        "spacing": 28,
        "concat": [_panel(panel, names, 380 if len(drawn) == 1 else 240) for panel in drawn],
    }
    return Figure(NAME, spec)


def _is_drawn(point: ParetoPoint) -> bool:
    return known(point.safety.value) is not None and known(point.usefulness.value) is not None


def _panel(panel: ParetoPanel, names: Sequence[str], size: int) -> Spec:
    references = [p for p in panel.points if p.reference]
    own = [p for p in panel.points if not p.reference]
    return {
        "title": {"text": panel.title, "fontSize": 12, "fontWeight": "normal", "offset": 6},
        "width": size,
        "height": size,
        "layer": [*_frontier(panel.points), *_references(references), *_points(own, names)],
    }


def _axes() -> Spec:
    return {"x": share_axis("safety", "Safety"), "y": share_axis("usefulness", "Usefulness")}


def _row(point: ParetoPoint) -> Spec:
    return {
        "name": point.name,
        "dominated": point.dominated,
        **{
            f"{axis}{part}": known(value)
            for axis, measure in {"safety": point.safety, "usefulness": point.usefulness}.items()
            for part, value in {"": measure.value, "_low": measure.low, "_high": measure.high}.items()
        },
    }


def _frontier(points: Sequence[ParetoPoint]) -> list[Spec]:
    """The staircase under which every point has another that is at least as good in both."""
    rows: list[Spec] = []
    for row in sorted(map(_row, points), key=lambda row: (row["safety"], row["usefulness"]), reverse=True):
        if not rows or row["usefulness"] > rows[-1]["usefulness"]:
            rows.append(row)
    if len(rows) < 2:
        return []
    mark = {"type": "line", "style": "reference", "strokeWidth": 1.2, "interpolate": "step-before"}
    return [{"data": {"values": rows}, "mark": mark, "encoding": _axes()}]


def _references(points: Sequence[ParetoPoint]) -> list[Spec]:
    if not points:
        return []
    axes = _axes()
    rows = [{**_row(p), "side": "right" if (known(p.safety.value) or 0) > 0.5 else "left"} for p in points]
    layers: list[Spec] = [
        {"mark": {"type": "point", "style": "missing", "shape": "cross", "size": 90}, "encoding": axes}
    ]
    for side, offset in {"left": 9, "right": -9}.items():
        mark = {"type": "text", "style": "reference-label", "align": side, "dx": offset, "dy": -8}
        layers.append(
            {
                "transform": [{"filter": f"datum.side == '{side}'"}],
                "mark": mark,
                "encoding": {**axes, "text": {"field": "name"}},
            }
        )
    return [{"data": {"values": rows}, "layer": layers}]


def _points(points: Sequence[ParetoPoint], names: Sequence[str]) -> list[Spec]:
    axes = _axes()
    colour = coloured(names)
    rule = {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7}
    across = {"y": axes["y"], "x": share_axis("safety_low", "Safety"), "x2": {"field": "safety_high"}}
    upright = {**axes, "y": {**axes["y"], "field": "usefulness_low"}, "y2": {"field": "usefulness_high"}}
    symbol = {"type": "point", "opacity": 1, "strokeWidth": 2}
    shape = shaped(names)
    size = {"field": "size", "type": "quantitative", "scale": None, "legend": None}
    hollow = {"condition": {"test": "datum.dominated", "value": 0}, "value": 1}
    return [
        {
            "data": {"values": _nested([_row(p) for p in points])},
            "layer": [
                {"mark": rule, "encoding": {**across, "color": colour}},
                {"mark": rule, "encoding": {**upright, "color": colour}},
                {
                    "mark": symbol,
                    "encoding": {**axes, "color": colour, "shape": shape, "size": size},
                },
                {
                    "mark": {**symbol, "filled": True},
                    "encoding": {**axes, "color": colour, "shape": shape, "size": size, "opacity": hollow},
                },
            ],
        }
    ]


def _nested(rows: list[Spec]) -> list[Spec]:
    """Points at the same place get smaller one after the other, so that each is seen."""
    places = [(row["safety"], row["usefulness"]) for row in rows]
    return [
        {**row, "size": 90 * 2 ** (places[at:].count(place) - 1)}
        for at, (row, place) in enumerate(zip(rows, places, strict=True))
    ]
