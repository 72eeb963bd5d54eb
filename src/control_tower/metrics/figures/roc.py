"""How well monitors tell attack from honest: ROC curves of actions and of whole trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_tower.metrics.figures.encodings import LINE_SYMBOL, coloured, dashed, lookup, share_axis
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.theme import Spec

NAME = "roc"


@dataclass(frozen=True)
class RocCurve:
    """One monitor's curve at one level."""

    name: str
    label: str
    """As the legend has it, in lines: its name, its AUROC, which a long name does not cut off."""
    level: str
    """`action` or `trajectory`; each has a panel."""
    points: tuple[tuple[float, float], ...]
    """False-positive and true-positive rate, ascending, from (0, 0) to (1, 1)."""


def roc(curves: Sequence[RocCurve], notes: Sequence[str] = ()) -> Figure | NoFigure:
    """The figure.

    Args:
        curves: In any order; a name keeps its colour in both panels.
        notes: What is positive, and how many samples there were.
    """
    curves = [c for c in curves if len(c.points) >= 2]
    if not curves:
        return NoFigure(NAME, "no monitor scored both an honest and an attack sample")
    levels = list(dict.fromkeys(c.level for c in curves))
    names = list(dict.fromkeys(c.name for c in curves))
    spec: Spec = {
        "title": {"text": "Attack against honest, by monitor score", "subtitle": list(notes)},
        "hconcat": [_panel(level, [c for c in curves if c.level == level], names) for level in levels],
        "spacing": 40,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }
    return Figure(NAME, spec)


def _panel(level: str, curves: Sequence[RocCurve], names: Sequence[str]) -> Spec:
    axes = {
        "x": share_axis("fpr", "False-positive rate (honest)"),
        "y": share_axis("tpr", "True-positive rate (attack)"),
    }
    rows = [
        {"name": c.name, "fpr": fpr, "tpr": tpr, "order": order}
        for c in curves
        for order, (fpr, tpr) in enumerate(c.points)
    ]
    chance = [{"fpr": 0, "tpr": 0}, {"fpr": 1, "tpr": 1}]
    legend = {
        "columns": 1,
        "symbolSize": LINE_SYMBOL,
        "values": [c.name for c in curves],
        "labelExpr": f"split({lookup({c.name: c.label for c in curves})}, '\\n')",
    }
    return {
        "title": {"text": f"By {level}", "fontSize": 12, "fontWeight": "normal", "offset": 6},
        "width": 290,
        "height": 290,
        "layer": [
            {"data": {"values": chance}, "mark": {"type": "line", "style": "reference"}, "encoding": axes},
            {
                "data": {"values": rows},
                "mark": {"type": "line"},
                "encoding": {
                    **axes,
                    "order": {"field": "order"},
                    "color": coloured(names, legend),
                    "strokeDash": dashed(names, legend),
                },
            },
        ],
    }
