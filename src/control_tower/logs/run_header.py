"""The document of a whole run: what its log's header says, and what its samples' documents add up to."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from control_tower.logs.json_text import JsonObject, child, children, texts
from control_tower.logs.trajectories import finite, shown_metadata

_OWN_FIELDS = frozenset({"run_name", "policy", "task_set", "tags"})
"""Metadata that are fields of the document."""

_RUN_ID = re.compile(r"(?:^|/runs/)([0-9a-f]{32})(?=$|[/?#.])")


@dataclass
class RunDigest:
    """What the documents of a run's samples add up to, taken one at a time."""

    usd: float | None = None
    """What is known of the cost; None when nothing is."""
    by_model: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    """None: a part of it has no price."""
    models: set[str] = field(default_factory=set[str])
    settings: set[str] = field(default_factory=set[str])
    """Of the samples' environments; "" for an environment without one."""

    def add(self, document: JsonObject) -> None:
        """Counts a sample in.

        Args:
            document: Of `trajectory_document`.
        """
        known = _number(child(document, "cost").get("total_cost"))
        if known is not None:
            self.usd = (self.usd or 0.0) + known
        roles = child(document, "cost_by_role")
        for role in roles:
            for model, usd in child(child(roles, role), "by_model").items():
                before, more = self.by_model.get(model, 0.0), _number(usd)
                self.by_model[model] = None if before is None or more is None else before + more
        self.models.update(texts(document, "models"))
        setting, slash, _ = str(child(document, "environment").get("id") or "").rpartition("/")
        self.settings.add(setting if slash else "")


def run_document(header: JsonObject, samples: RunDigest) -> JsonObject:
    """A run as one JSON object, without what only a store knows: ids, addresses, who and when.

    NaN and infinity are null.

    Args:
        header: Of the log.
        samples: All of them.
    """
    spec = child(header, "eval")
    metadata = shown_metadata(header)
    kept = {key: value for key, value in metadata.items() if key not in _OWN_FIELDS}
    if source := _RUN_ID.search(str(metadata.get("derived_from") or "")):
        kept["source_run_id"] = source[1]
    document: JsonObject = {
        "name": str(metadata.get("run_name") or spec.get("task") or "run"),
        "policy": _text(metadata.get("policy")),
        "task_set": _text(metadata.get("task_set")),
        "producer": "control_eval" if metadata.get("attack_policy_selection") else "eval",
        "total_cost_usd": None if samples.usd is None else round(samples.usd, 6),
        "cost_by_model": {
            model: None if usd is None else round(usd, 6) for model, usd in sorted(samples.by_model.items())
        },
        "metrics": _metrics(header),
        "metadata": kept,
        "tags": texts(metadata, "tags"),
        "description": None,
        "dataset": None,
        "models": sorted(samples.models),
        "control_settings": [] if "" in samples.settings else sorted(samples.settings),
    }
    return finite(document)


def _metrics(header: JsonObject) -> dict[str, dict[str, float | None]]:
    """By scorer; those of a score that is called otherwise have its name in front."""
    found: dict[str, dict[str, float | None]] = {}
    for result in children(child(header, "results"), "scores"):
        name, scorer = str(result.get("name")), str(result.get("scorer") or result.get("name"))
        prefix = "" if name == scorer else f"{name}/"
        metrics = child(result, "metrics")
        values = found.setdefault(scorer, {})
        for metric in metrics:
            values[prefix + metric] = _number(child(metrics, metric).get("value"))
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
