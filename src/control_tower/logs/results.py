"""A log's results and stats worked out again from its samples' summaries, as Inspect does when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from control_tower import inspect_private
from control_tower.errors import ValidationError
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.usage import USAGE_KEYS, added, usage_of


@dataclass(frozen=True)
class Computed:
    """`results` of a header and the `reductions.json` beside it, as JSON."""

    results: JsonObject
    reductions: list[JsonObject]
    uncomputed: tuple[str, ...]
    """Scorers whose metrics are not installed here; they have no results."""


def compute_results(header: JsonObject, summaries: Sequence[JsonObject], total: int) -> Computed:
    """Results over all summaries, which hold every score's value in full.

    Args:
        header: Names the scorers, their metrics and the reducers.
        summaries: In the order in which the metrics are to see them.
        total: How many there should be.

    Raises:
        ValidationError: The header or a score is not what Inspect reads.
    """
    try:
        return _computed(header, summaries, total)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValidationError(
            f"Inspect cannot read the log's header or a score, so it has no results: {place}: {first['msg']}"
        ) from None


def _computed(header: JsonObject, summaries: Sequence[JsonObject], total: int) -> Computed:
    from inspect_ai.scorer import SampleScore, Score
    from pydantic_core import to_jsonable_python

    # Reading older spellings, Inspect changes the object that it is given.
    log = inspect_private.header_model({**header, "eval": dict(header["eval"]), "results": None})
    infos: list[Any] = []
    uncomputed: list[str] = []
    for scorer in log.eval.scorers or []:
        try:
            infos.append(inspect_private.scorer_info(log, scorer))
        except (LookupError, TypeError):
            uncomputed.append(scorer.name)
    names = inspect_private.score_names(infos)
    scores: list[dict[str, SampleScore]] = []
    for summary in summaries:
        recorded = child(summary, "scores")
        scores.append(
            {
                name: SampleScore(
                    score=Score.model_validate(score),
                    sample_id=summary["id"],
                    sample_metadata=child(summary, "metadata"),
                )
                for name, score in recorded.items()
                if name in names
            }
        )
    results, reductions = inspect_private.compute_metrics(
        log,
        infos,
        [given for given in scores if given],
        total=total,
        completed=sum(not summary.get("error") for summary in summaries),
    )
    return Computed(
        to_jsonable_python(results, exclude_none=True),
        to_jsonable_python(reductions, exclude_none=True),
        tuple(uncomputed),
    )


def stats_of(summaries: Sequence[JsonObject], recorded: Sequence[JsonObject] = ()) -> JsonObject:
    """The `stats` of a header: what these samples used, and when the first began and the last ended.

    Args:
        summaries: Of the samples that are in the log.
        recorded: Stats of logs they were taken from, for their times and history.
    """
    began = [str(row["started_at"]) for row in (*recorded, *summaries) if row.get("started_at")]
    ended = [str(row["completed_at"]) for row in (*recorded, *summaries) if row.get("completed_at")]
    stats: JsonObject = {
        "started_at": min(began, default=""),
        "completed_at": max(ended, default=""),
        **{key: added(usage_of(row, key) for row in summaries) for key in USAGE_KEYS},
    }
    if any("connection_limit_history" in row for row in recorded):
        changes = [change for row in recorded for change in children(row, "connection_limit_history")]
        stats["connection_limit_history"] = changes
    return stats
