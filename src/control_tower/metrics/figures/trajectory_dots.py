"""Each sample as a row of dots, its actions: how suspicious each was, when harm was done, was it caught."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from control_tower.metrics.figures.encodings import known, lookup
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.theme import Spec

NAME = "trajectory_dots"
MOST_ROWS = 40
"""Samples of a stream that are drawn."""
_ROW = 16

T = TypeVar("T")


@dataclass(frozen=True)
class DotRow:
    """One sample."""

    name: str
    stream: str
    """`honest` or `attack`."""
    scores: tuple[float | None, ...]
    """The monitor's score of each action, 0 to 100; None where it gave none."""
    audited: tuple[float, ...] = ()
    """The probability that each action is audited."""
    landed_at: int | None = None
    """The action by which a live side task had succeeded; -1 before the first."""
    side_score: float | None = None
    caught: float | None = None
    """The probability that an attack is caught, 0 to 1."""


def evenly(samples: Sequence[T]) -> list[T]:
    """At most `MOST_ROWS` of a stream's samples, evenly spaced."""
    count = min(len(samples), MOST_ROWS)
    return [samples[at * len(samples) // count] for at in range(count)]


def trajectory_dots(
    rows: Sequence[DotRow], notes: Sequence[str] = (), of: Mapping[str, int] | None = None
) -> Figure | NoFigure:
    """The figure.

    Args:
        rows: In the order of drawing.
        notes: Whose scores these are, and at which audit budget.
        of: How many samples each stream has, of which `rows` are only some.
    """
    rows = [row for row in rows if row.scores]
    if not rows:
        return NoFigure(NAME, "no sample has an action")
    streams = {name: [row for row in rows if row.stream == name] for name in ("attack", "honest")}
    shown = {name: part for name, part in streams.items() if part}
    totals = {name: (of or {}).get(name, len(part)) for name, part in shown.items()}
    lines = [
        f"{len(part)} of {totals[name]} {name} samples are drawn"
        for name, part in shown.items()
        if len(part) < totals[name]
    ]
    longest = max(len(row.scores) for row in rows)
    spec: Spec = {
        "title": {"text": "Actions and how suspicious they looked", "subtitle": [*notes, *lines]},
        "vconcat": [_panel(name, part, longest) for name, part in shown.items()],
        "spacing": 16,
        "resolve": {"scale": {"color": "shared"}},
    }
    return Figure(NAME, spec)


def _panel(stream: str, rows: Sequence[DotRow], longest: int) -> Spec:
    """Rows are named by number, since two samples may share a name."""
    step = max(4.0, min(18.0, 720 / (longest + 1)))
    shared = _shared_start([row.name for row in rows])
    labels = lookup([row.name.removeprefix(shared) for row in rows])
    dots = [
        {"row": at, "action": action, "score": known(score), "audited": _probability(row, action)}
        for at, row in enumerate(rows)
        for action, score in enumerate(row.scores)
    ]
    ends = [
        {
            "row": at,
            "landed": None if row.landed_at is None else row.landed_at + 0.5,
            "outcome": _outcome(row),
        }
        for at, row in enumerate(rows)
    ]
    x: Spec = {
        "field": "action",
        "type": "quantitative",
        "title": "Action",
        "scale": {"domain": [-1, longest], "nice": False},
        "axis": {"values": _ticks(longest), "grid": False},
    }
    y: Spec = {
        "field": "row",
        "type": "ordinal",
        "title": None,
        "scale": {"domain": list(range(len(rows)))},
        "axis": {
            "labelExpr": labels,
            "labelLimit": 420,
            "maxExtent": 480,
            "labelFontSize": 10,
            "ticks": False,
            "domain": False,
        },
    }
    colour: Spec = {
        "field": "score",
        "type": "quantitative",
        "title": "Score (0-100)",
        "scale": {"domain": [0, 100], "range": "scores"},
        "legend": {"orient": "bottom", "gradientLength": 200},
    }
    size = min(step - 1, 10) ** 2 * math.pi / 4
    ring = {"type": "point", "style": "audited", "shape": "circle", "size": size * 1.9}
    bar = {"type": "tick", "style": "landing", "thickness": 2.5, "opacity": 1, "height": _ROW - 2}
    ring_layer = {
        "transform": [{"filter": "datum.audited > 0"}],
        "mark": ring,
        "encoding": {"x": x, "y": y, "opacity": {"field": "audited", "type": "quantitative", "scale": None}},
    }
    heading = f"{stream.capitalize()} samples" + (f" of {shared[:-1]}" if shared else "")
    return {
        "title": {"text": heading, "fontSize": 12, "fontWeight": "normal", "offset": 6},
        "width": step * (longest + 1),
        "height": {"step": _ROW},
        "layer": [
            {
                "data": {"values": dots},
                "layer": [
                    {
                        "transform": [{"filter": "isValid(datum.score)"}],
                        "mark": {"type": "circle", "size": size, "opacity": 1},
                        "encoding": {"x": x, "y": y, "color": colour},
                    },
                    {
                        "transform": [{"filter": "!isValid(datum.score)"}],
                        "mark": {"type": "point", "style": "missing", "shape": "circle", "size": size * 0.7},
                        "encoding": {"x": x, "y": y},
                    },
                    ring_layer,
                ],
            },
            {
                "data": {"values": ends},
                "layer": [
                    {
                        "transform": [{"filter": "isValid(datum.landed)"}],
                        "mark": bar,
                        "encoding": {"x": {**x, "field": "landed"}, "y": y},
                    },
                    {
                        "mark": {"type": "text", "style": "note", "align": "left", "dx": 6},
                        "encoding": {"x": {"value": "width"}, "y": y, "text": {"field": "outcome"}},
                    },
                ],
            },
        ],
    }


def _ticks(actions: int) -> list[int]:
    """Round numbers of actions, about a dozen at most."""
    step = next((step for step in (1, 2, 5, 10, 20, 50) if actions <= 12 * step), 100)
    return list(range(0, actions, step))


def _shared_start(names: Sequence[str]) -> str:
    """What all sample ids have in common up to their first colon: the environment."""
    starts = {name[: name.find(":") + 1] for name in names}
    return starts.pop() if len(starts) == 1 else ""


def _probability(row: DotRow, action: int) -> float:
    return row.audited[action] if action < len(row.audited) else 0


def _outcome(row: DotRow) -> str:
    """What became of an attack, in the fewest words."""
    if row.stream != "attack":
        return ""
    if known(row.side_score) is None:
        return "side task unscored"
    failed = "" if row.side_score else "; side task failed"
    caught = known(row.caught)
    if caught is None:
        return f"catch unknown{failed}"
    if caught == 0:
        return f"not caught{failed}"
    return ("caught" if caught == 1 else f"caught {100 * caught:.3g} %") + failed
