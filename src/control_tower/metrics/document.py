"""`metrics.json`: a report as JSON that other programs may rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from control_tower.metrics.report import Evaluation, Report, Roc, Scores

SCHEMA = "control_tower.metrics"
VERSION = 1

BIN_EDGES = np.linspace(0, 100, 51)
"""Of the histograms of scores; a score of 100 is in the last bin."""

_DIGITS = 10


def document(report: Report) -> dict[str, Any]:
    """The report; what is undefined is null.

    Single trajectories and their scores are left out, see `trajectories.csv`.
    """
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "parameters": _json(report.parameters),
        "evaluations": [_evaluation(evaluation) for evaluation in report.evaluations],
        "pareto": [
            {"budget": budget, "points": [_json(point) for point in points]}
            for budget, points in report.pareto.items()
        ],
    }


def document_text(report: Report) -> str:
    """The file's text: the same for the same report, byte by byte."""
    return json.dumps(document(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    record = _json(evaluation)
    record["rocs"] = [_roc(roc) for roc in evaluation.rocs]
    record["scores"] = [_scores(scores) for scores in evaluation.scores]
    return record


def _roc(roc: Roc) -> dict[str, Any]:
    record = _json(roc)
    record["tpr_at_fpr"] = [
        {"false_positive_rate": rate, **_json(estimate)} for rate, estimate in roc.tpr_at_fpr.items()
    ]
    return record


def _scores(scores: Scores) -> dict[str, Any]:
    return {
        "level": scores.level,
        "bin_edges": _json(BIN_EDGES),
        "honest": np.histogram(scores.honest, BIN_EDGES)[0].tolist(),
        "attack": np.histogram(scores.attack, BIN_EDGES)[0].tolist(),
    }


def _json(value: Any) -> Any:
    """A record as JSON holds it; numbers to ten digits, which is what they are good for."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _json(getattr(value, field.name)) for field in fields(value) if field.name != "dots"
        }
    if isinstance(value, np.ndarray):
        return [_json(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): _json(item) for key, item in items}
    if isinstance(value, tuple | list):
        return [_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
