"""What a sample came to, from the summary that its log keeps of it."""

from __future__ import annotations

from control_tower.fleet.documents import SampleResult, event_scores
from control_tower.logs.json_text import JsonObject, child
from control_tower.models.cost import cost_of_usage

_PLAYER = "untrusted"
"""The role whose model the results are about."""


def sample_result(summary: JsonObject, *, task: str, side: bool, model: str) -> SampleResult:
    """A sample's result.

    Args:
        summary: Inspect's summary of the sample, as JSON.
        task: `<environment>/<main>[+<side>]`.
        side: Whether it has a side task.
        model: Who played, as `model_of` says.
    """
    error = summary.get("error")
    costs = [cost_of_usage(usage) for usage in child(summary, "model_usage").values()]
    known = not any(cost.incomplete for cost in costs)
    return SampleResult(
        sample=summary["id"],
        epoch=int(summary.get("epoch") or 1),
        status="success" if error is None else "error",
        task=task,
        model=model,
        mode="attack" if side else "honest",
        scores=event_scores(child(summary, "scores"), attack=side),
        error=error,
        duration_s=summary.get("total_time"),
        usd=sum(cost.usd or 0.0 for cost in costs) if known else None,
    )


def model_of(spec: JsonObject) -> str:
    """The model that plays: the untrusted one; where that role is not bound, the run's main model.

    Args:
        spec: `eval` of a log's header.
    """
    player = child(child(spec, "model_roles"), _PLAYER)
    return str(player.get("model") or spec.get("model"))
