"""The header, made current: names, versions, thresholds, scorers and what their metrics come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from control_tower.conversion.notes import Notes
from control_tower.conversion.sample import CONVERTED_FROM
from control_tower.conversion.verdicts import FACTOR
from control_tower.conversion.version import CURRENT_VERSION
from control_tower.errors import ValidationError
from control_tower.logs.attempts import expected_samples
from control_tower.logs.format import WhiteRecord
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.results import compute_results
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import MONITOR_SCORE, TASKS_SCORE, WORKSPACE_DIFF_SCORE

_OLD_TASKS = frozenset({"control_tower/control_eval", "control_tower/control_eval2"})
_TASK = "control_tower/eval"
_RENAMED = {"untrusted_policy_selection": "policy_selection", "untrusted_policy_args": "policy_args"}
_WHITE = WhiteRecord(private_tools=[], harnesses=None, max_steps=200)


@dataclass
class Seen:
    """What the header says of the samples, gathered while they pass."""

    summaries: list[JsonObject] = field(default_factory=list[JsonObject])
    mains: dict[str, None] = field(default_factory=dict[str, None])
    sides: dict[str, None] = field(default_factory=dict[str, None])
    scores: dict[str, None] = field(default_factory=dict[str, None])
    """Names of Scores of tasks, then of all others, in the order first seen."""
    side_scores: dict[str, None] = field(default_factory=dict[str, None])
    main_scores: dict[str, None] = field(default_factory=dict[str, None])


def converted_header(header: JsonObject, notes: Notes) -> JsonObject:
    """A header with today's names, version and scale; its scorers are still the old ones.

    Raises:
        ValidationError: A threshold is no number.
    """
    spec = dict(header["eval"])
    if spec.get("task_registry_name") in _OLD_TASKS:
        spec["task_registry_name"] = _TASK
        notes.changed("control_eval of one policy is control_tower/eval")
    for key in ("task_args", "task_args_passed"):
        if isinstance(spec.get(key), dict):
            spec[key] = _renamed(spec[key], {"untrusted_policy": "policy"}, notes)
    metadata = _renamed(child(spec, "metadata"), _RENAMED, notes)
    selection = child(metadata, "protocol_selection")
    if isinstance(selection.get("args"), dict):
        metadata["protocol_selection"] = {**selection, "args": _scaled(selection["args"], notes)}
    if isinstance(metadata.get("protocol_args"), dict):
        metadata["protocol_args"] = _scaled(metadata["protocol_args"], notes)
    if not metadata.get("white"):
        metadata["white"] = _WHITE.model_dump()
        notes.changed("white settings that are not recorded are the defaults")
    if isinstance(metadata.get("env_versions"), dict):
        metadata["env_versions"] = {
            env: _env_version(version) for env, version in metadata["env_versions"].items()
        }
    metadata["eval_version"] = CURRENT_VERSION
    metadata[CONVERTED_FROM] = [notes.origin]
    status = header.get("status")
    return {
        **header,
        "status": "cancelled" if status == "started" else status,
        "eval": {**spec, "metadata": metadata},
    }


def with_results(
    header: JsonObject, seen: Seen, reductions: Sequence[JsonObject], notes: Notes
) -> tuple[JsonObject, list[JsonObject]]:
    """The header with its scorers and results, and the reductions beside it.

    Results of scorers whose Scores are as they were stay; the others are computed.

    Args:
        header: With the old scorers and results.
        seen: The converted samples.
        reductions: The old ones.
        notes: Counts what is done.
    """
    spec = header["eval"]
    old = {str(scorer.get("name")): scorer for scorer in children(spec, "scorers")}
    made = [name for name in (*seen.side_scores, *seen.main_scores) if name in seen.scores]
    made = list(dict.fromkeys(made))
    ours = {WORKSPACE_DIFF_SCORE, TASKS_SCORE, MONITOR_SCORE, *made}
    kept = [name for name in (*old, *seen.scores) if name in seen.scores and name not in ours]
    kept = [name for name in dict.fromkeys(kept) if not AUDIT_NAME.fullmatch(name)]
    monitor = [MONITOR_SCORE] if MONITOR_SCORE in seen.scores else []
    scorers = [
        _scorer(WORKSPACE_DIFF_SCORE),
        *(_scorer(name, mean=True) for name in made),
        _scorer(TASKS_SCORE),
        *({**_scorer(name), "options": child(old.get(name), "options")} for name in monitor),
        *(old.get(name) or _scorer(name) for name in kept),
    ]
    computed_header = {**header, "eval": {**spec, "scorers": [s for s in scorers if s["name"] in made]}}
    total = max(len(expected_samples(header)), len(seen.summaries))
    computed = compute_results(computed_header, seen.summaries, total)
    before = child(header, "results")
    gone = {"headline", "scores", "sample_reductions"}
    stay = [score for score in children(before, "scores") if score.get("scorer") in kept]
    results = {
        **{key: value for key, value in before.items() if key not in gone},
        **computed.results,
        "scores": [*children(computed.results, "scores"), *stay],
    }
    notes.changed("scorers and metrics computed again")
    still = [entry for entry in reductions if entry.get("scorer") in kept]
    finished = {**header, "eval": {**spec, "scorers": scorers}, "results": results}
    return finished, [*computed.reductions, *still]


def _scorer(name: str, *, mean: bool = False) -> JsonObject:
    metrics: list[JsonObject] = [{"name": "inspect_ai/mean", "options": {}}] if mean else []
    return {"name": name, "options": {}, "metrics": metrics, "metadata": {}}


def _renamed(record: JsonObject, names: dict[str, str], notes: Notes) -> JsonObject:
    """An object under its keys of today; a renamed one replaces what stands there, unless it is empty."""
    changed = {key: value for key, value in record.items() if key not in names}
    for old, new in names.items():
        if record.get(old):
            changed[new] = record[old]
            notes.changed(f"{old} renamed to {new}")
    return changed


def _scaled(arguments: JsonObject, notes: Notes) -> JsonObject:
    changed: JsonObject = {}
    for key, value in arguments.items():
        scales = key.endswith("_threshold") and value is not None
        changed[key] = _times(key, value, notes) if scales else value
        notes.changed("threshold scaled from 0-10 to 0-100", int(scales))
    return changed


def _times(key: str, value: Any, notes: Notes) -> float:
    try:
        if not isinstance(value, bool):
            return FACTOR * float(value)
    except (TypeError, ValueError):
        pass
    raise ValidationError(f"{notes.log}: the protocol's {key} is {value!r}, which is no number")


def _env_version(version: Any) -> Any:
    """Where an environment came from; an old log says it in one text."""
    if not isinstance(version, str):
        return version
    unknown = dict.fromkeys(("repo", "commit", "dirty", "remote_url", "image_tag"))
    return {**unknown, "version": version}
