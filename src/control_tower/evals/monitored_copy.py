"""Writing the copy of a log that monitors judged: one sample at a time, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_tower.logs.archive import DERIVED, HEADER, REDUCTIONS, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.attempts import FINGERPRINT
from control_tower.logs.json_text import JsonObject, child, children, dumps
from control_tower.logs.monitored import ITEMS, with_events, with_verdicts
from control_tower.logs.usage import USAGE_KEYS, added, usage_of
from control_tower.logs.zip_writer import new_archive
from control_tower.monitors.config import Monitor, sources_of
from control_tower.records.monitor_scores import MonitorEntry
from control_tower.records.scores import MONITOR_SCORE

SCOPES = ("monitor: action ", "monitor: trajectory")
"""How the names of the spans begin in which one thing is judged."""


@dataclass(frozen=True)
class Copy:
    """What the header of a copy says of the judging."""

    source_name: str
    monitors: Sequence[Monitor]
    kind: str
    models: Mapping[str, str]


@dataclass(frozen=True)
class Written:
    """What a copy holds that its source does not."""

    verdicts: int
    unscored: int
    kept: int
    reasons: tuple[str, ...]


def write_copy(base: Path, target: Path, record: Path, ids: Mapping[SampleKey, str], copy: Copy) -> Written:
    """Write a log anew with the verdicts of a judging.

    Args:
        base: the log that was judged.
        target: where the copy goes; may be the base.
        record: the log of the judging.
        ids: of each sample its id in the record.
        copy: what is said of the judging.

    Raises:
        OperationError: it cannot be written; what was there is untouched.
    """
    found: dict[SampleKey, list[MonitorEntry]] = {}
    kept = 0
    with (
        EvalArchive.open(base) as archive,
        EvalArchive.open(record) as judging,
        new_archive(target) as writer,
    ):
        header = _header(archive.header(), judging.header(), copy)
        writer.add(START, dumps({key: header[key] for key in ("version", "eval", "plan") if key in header}))
        rows = {SampleKey.of(row): row for row in archive.summaries()}
        for key in archive.sample_keys():
            judged = judging.sample(SampleKey(ids[key], 1))
            entries = [MonitorEntry.from_json(item) for item in children(child(judged, "store"), ITEMS)]
            entries.sort(key=lambda entry: -1 if entry.message_id is None else int(entry.message_id))
            found[key] = entries
            kept += sum("kept" in child(event, "data") for event in children(judged, "events"))
            sample = with_verdicts(archive.sample(key), judged, entries)
            writer.add(key.member, dumps(with_events(sample, judged, SCOPES)))
            rows[key] = with_verdicts(rows[key], judged, entries)
        writer.add(SUMMARIES, dumps(list(rows.values())))
        if REDUCTIONS in archive.members.members:
            writer.copy(archive.members, REDUCTIONS)
        writer.add(HEADER, dumps(header))
    everything = [entry for entries in found.values() for entry in entries]
    unscored = [entry for entry in everything if entry.value is None]
    reasons = dict.fromkeys(f"{entry.monitor}: {entry.explanation}" for entry in unscored)
    return Written(len(everything), len(unscored), kept, tuple(reasons))


def _header(header: JsonObject, judging: JsonObject, copy: Copy) -> JsonObject:
    """The header with the monitors' scorer last but for audits, what they used, and where it comes from."""
    spec = header["eval"]
    others = [scorer for scorer in children(spec, "scorers") if scorer.get("name") != MONITOR_SCORE]
    options: dict[str, Any] = {
        "monitors": [monitor.model_dump(mode="json") for monitor in copy.monitors],
        "kind": copy.kind,
        "models": dict(copy.models),
    }
    scorer: JsonObject = {"name": MONITOR_SCORE, "options": options, "metrics": [], "metadata": {}}
    metadata = child(spec, "metadata")
    metadata = {
        **metadata,
        "derived_from": metadata.get("derived_from") or copy.source_name,
        "monitor_prompts": {**child(metadata, "monitor_prompts"), **sources_of(copy.monitors)},
        # A copy is no attempt at the run, which --resume could go on with.
        FINGERPRINT: None,
    }
    stats = child(header, "stats")
    spent = child(judging, "stats")
    totals = {key: added([usage_of(stats, key), usage_of(spent, key)]) for key in USAGE_KEYS}
    changed: JsonObject = {
        **header,
        "eval": {**spec, "scorers": [*others, scorer], "metadata": metadata},
        "stats": {**stats, **totals},
    }
    return {key: value for key, value in changed.items() if key not in DERIVED}
