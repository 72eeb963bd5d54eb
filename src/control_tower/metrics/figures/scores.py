"""What scores a monitor gives to honest and to attack: a histogram of each, one panel a monitor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_tower.metrics.figures.encodings import PERCENT
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.theme import Spec

NAME = "scores"
BINS = 20
_LABEL = 12
"""Pixels between the names of thresholds."""


@dataclass(frozen=True)
class ScorePanel:
    """One monitor's scores at one level."""

    name: str
    honest: tuple[float, ...]
    """Scores from 0 to 100."""
    attack: tuple[float, ...]
    unscored_honest: int = 0
    unscored_attack: int = 0
    thresholds: tuple[tuple[str, float], ...] = ()
    """Named scores, drawn as lines; in any order."""


def scores(panels: Sequence[ScorePanel], notes: Sequence[str] = ()) -> Figure | NoFigure:
    """The figure.

    Args:
        panels: Those without any score are left out and named below the title.
        notes: Lines below the title.
    """
    drawn = [panel for panel in panels if panel.honest or panel.attack]
    if not drawn:
        return NoFigure(NAME, "no monitor gave a score")
    absent = [panel.name for panel in panels if panel not in drawn]
    lines = [*notes, *([f"Not drawn, nothing was scored: {', '.join(absent)}"] if absent else [])]
    spec: Spec = {
        "title": {"text": "Monitor scores of honest and attack", "subtitle": lines},
        "columns": min(len(drawn), 3),
        "spacing": 28,
        "concat": [_panel(panel, wide=len(drawn) < 3) for panel in drawn],
    }
    return Figure(NAME, spec)


def histogram(values: Sequence[float]) -> list[float]:
    """The share of values in each of `BINS` equal bins from 0 to 100; 100 is in the last."""
    counts = [0] * BINS
    for value in values:
        counts[min(max(int(value * BINS / 100), 0), BINS - 1)] += 1
    return [count / len(values) for count in counts]


def _panel(panel: ScorePanel, *, wide: bool) -> Spec:
    streams = {
        "honest": (panel.honest, panel.unscored_honest),
        "attack": (panel.attack, panel.unscored_attack),
    }
    rows = [
        {"stream": stream, "score": 100 / BINS * edge, "share": share}
        for stream, (values, _) in streams.items()
        if values
        for edge, share in enumerate(_closed(histogram(values)))
    ]
    counted = "; ".join(
        f"{stream} n = {len(values)}" + (f" + {unscored} unscored" if unscored else "")
        for stream, (values, unscored) in streams.items()
    )
    x = {
        "field": "score",
        "type": "quantitative",
        "title": "Score (0-100)",
        "scale": {"domain": [0, 100], "nice": False},
        "axis": {"values": [0, 20, 40, 60, 80, 100], "grid": False},
    }
    y = {
        "field": "share",
        "type": "quantitative",
        "title": "Share (square-root scale)",
        "scale": {"type": "sqrt", "domain": [0, 1]},
        "axis": {"values": [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1], "labelExpr": PERCENT},
    }
    colour = {
        "field": "stream",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["honest", "attack"], "range": "streams"},
        "legend": {"orient": "bottom", "direction": "horizontal"},
    }
    thresholds = sorted(panel.thresholds, key=lambda threshold: threshold[1])
    return {
        "title": {
            "text": panel.name,
            "subtitle": counted,
            "fontSize": 12,
            "fontWeight": "normal",
            "offset": 6,
        },
        "width": 340 if wide else 220,
        "height": 200 if wide else 150,
        "layer": [
            {
                "data": {"values": rows},
                "mark": {
                    "type": "area",
                    "interpolate": "step-after",
                    "opacity": 0.3,
                    "line": {"strokeWidth": 1.5},
                },
                "encoding": {"x": x, "y": {**y, "stack": None}, "color": colour},
            },
            *(_threshold(*threshold, x, above) for above, threshold in enumerate(thresholds, 1)),
        ],
    }


def _threshold(name: str, score: float, x: Spec, above: int) -> Spec:
    """A line that begins at its name above the panel, lower ones lower: no line runs through a name."""
    beside = {"align": "left", "dx": 3} if score < 20 else {"align": "right", "dx": -3}
    return {
        "data": {"values": [{"text": name, "score": score}]},
        "layer": [
            {
                "mark": {"type": "rule", "style": "reference"},
                "encoding": {"x": x, "y": {"value": -_LABEL * above - 4}, "y2": {"value": "height"}},
            },
            {
                "mark": {"type": "text", "style": "reference-label", **beside},
                "encoding": {"x": x, "y": {"value": -_LABEL * above}, "text": {"field": "text"}},
            },
        ],
    }


def _closed(shares: list[float]) -> list[float]:
    """With the last one twice, so that steps reach the right edge."""
    return [*shares, shares[-1]]
