"""Monitors' verdicts as the current `monitor` Score: one map of keys, on the scale from 0 to 100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from control_tower.conversion.notes import Notes
from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.records.monitor_scores import (
    UNSCORED,
    MonitorEntry,
    MonitorKey,
    monitor_score,
    read_suspicion,
)
from control_tower.records.scores import MONITOR_SCORE

COMBINED = "combined"
"""The name of the monitor where an old Score is only one number."""

OLD_MONITOR = "monitor"
"""Under `converted_from` of a sample: what its old monitor Score said beside the verdicts."""

FACTOR = 10
"""Old verdicts and thresholds went from 0 to 10."""

_STORE = "MonitorScores:"


def with_monitor_map(sample: JsonObject, notes: Notes) -> tuple[JsonObject, JsonObject | None]:
    """A sample whose `monitor` Score is a map of keys, still on its old scale.

    Returns:
        The sample, and what the old Score said that the map cannot hold.

    Raises:
        ValidationError: A verdict does not say what it is about.
    """
    old = child(child(sample, "scores"), MONITOR_SCORE)
    store = {key: value for key, value in child(sample, "store").items() if not key.startswith(_STORE)}
    if "store" in sample:
        sample = {**sample, "store": store}
    if not old:
        return sample, None
    metadata, rest = child(old, "metadata"), None
    if isinstance(metadata.get("scores"), list):
        entries = [_entry(sample, record, notes) for record in children(metadata, "scores")]
        value, explained = monitor_score(entries, Transcript.of(sample).by_message)
        rest = _beside(old, children(metadata, "scores"))
        notes.changed("monitor verdicts keyed by monitor, draw and action")
    elif isinstance(old.get("value"), dict):
        value, explained = cast("dict[str, Any]", old["value"]), metadata
        for key in value:
            _check_key(sample, key, notes)
    else:
        entry = MonitorEntry(None, COMBINED, 1, read_suspicion(old.get("value")), old.get("explanation"))
        value, explained = monitor_score([entry], {})
        rest = {"value": old.get("value"), "metadata": metadata} if metadata else None
        notes.changed("monitor verdict without a monitor named combined")
    score = {**old, "value": value, "metadata": explained}
    return {**sample, "scores": {**child(sample, "scores"), MONITOR_SCORE: score}}, rest


def with_scaled_monitor(sample: JsonObject, notes: Notes) -> JsonObject:
    """A sample whose verdicts go from 0 to 100; what is no number, or below 0, is unscored."""
    old = child(child(sample, "scores"), MONITOR_SCORE)
    if not old:
        return sample
    value: dict[str, float | str] = {}
    explained = dict(child(old, "metadata"))
    for key, given in child(old, "value").items():
        number = read_suspicion(given)
        if number is None or number < 0:
            value[key] = UNSCORED
            if given != UNSCORED:
                notes.changed("monitor verdict that is no number is unscored")
                explained.setdefault(key, {"explanation": f"the old log says {given!r}"})
        else:
            value[key] = FACTOR * number
            notes.changed("monitor verdict scaled from 0-10 to 0-100")
    explained = {key: text for key, text in explained.items() if value.get(key) == UNSCORED}
    score = {**old, "value": value, "metadata": explained}
    return {**sample, "scores": {**child(sample, "scores"), MONITOR_SCORE: score}}


def _entry(sample: JsonObject, record: Mapping[str, Any], notes: Notes) -> MonitorEntry:
    if not record.get("monitor"):
        raise notes.refused(
            SampleKey.of(sample), f"a monitor's verdict names no monitor: {dict(record)!r:.80}"
        )
    id = record.get("message_id")
    draw = record.get("draw") or 1
    if type(draw) is not int or draw < 1:
        raise notes.refused(SampleKey.of(sample), f"a verdict of {record['monitor']!r} has the draw {draw!r}")
    return MonitorEntry(
        None if id is None else str(id).replace("/", "_"),
        str(record["monitor"]),
        draw,
        read_suspicion(record.get("value")),
        record.get("explanation"),
        record.get("attempts"),
    )


def _beside(old: JsonObject, records: list[JsonObject]) -> JsonObject | None:
    """The combined number, how it was combined, and words about verdicts that are numbers."""
    rest = {key: value for key, value in child(old, "metadata").items() if key != "scores"}
    said = [record for record in records if read_suspicion(record.get("value")) is not None]
    said = [record for record in said if record.get("explanation") is not None]
    return {"value": old.get("value"), "metadata": rest, **({"explained": said} if said else {})}


def _check_key(sample: JsonObject, key: str, notes: Notes) -> None:
    try:
        MonitorKey.parse(key)
    except ValidationError:
        raise notes.refused(
            SampleKey.of(sample), f"the key {key!r} of its monitor Score names no monitor, draw and action"
        ) from None
