"""What figures have in common: shares as axes, and names told apart by colour, dash and shape."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, cast

from control_tower.metrics.figures.theme import LIGHT, Spec

PERCENT = "format(datum.value * 100, '~r') + ' %'"
"""Labels of an axis whose values are shares."""

LINE_SYMBOL = 500
"""Legends of lines have symbols of this size, long enough to show a dash."""

_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right"]
_COLOURS = len(LIGHT.series)


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold; names come from logs."""


def printable(text: str) -> str:
    """The text with a mark for each character that a figure cannot hold."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def lookup(labels: Any) -> str:
    """An expression for an axis or a legend that shows something else than its values.

    Args:
        labels: A list of texts by number, or a mapping of texts by name.
    """
    if isinstance(labels, dict):
        given = cast("dict[str, str]", labels)
        shown: Any = {printable(name): printable(text) for name, text in given.items()}
    else:
        shown = [printable(text) for text in labels]
    return f"{json.dumps(shown)}[datum.value]"


def share_axis(field: str, title: str) -> Spec:
    """An axis from 0 to 100 %."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, 1]},
        "axis": {"tickCount": 5, "labelExpr": PERCENT},
    }


def coloured(names: Sequence[str], legend: Spec | None = None) -> Spec:
    """The colour of each name; they repeat when there are more names than colours."""
    return _nominal(names, "series", legend)


def dashed(names: Sequence[str], legend: Spec | None = None) -> Spec:
    """The dash of each name: curves that coincide show both, and print without colours."""
    return _nominal(names, [_DASHES[i % len(_DASHES)] for i in range(len(names))], legend)


def shaped(names: Sequence[str], legend: Spec | None = None) -> Spec:
    """The shape of each name; shifted by one with each round of the colours."""
    return _nominal(names, [_SHAPES[(i + i // _COLOURS) % len(_SHAPES)] for i in range(len(names))], legend)


def known(value: float | None) -> float | None:
    """The number; None for NaN."""
    return None if value is None or math.isnan(value) else value


def _nominal(names: Sequence[str], range_: Any, legend: Spec | None) -> Spec:
    return {
        "field": "name",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(names), "range": range_},
        "legend": {"orient": "bottom", "columns": 2, "direction": "vertical", **(legend or {})},
    }
