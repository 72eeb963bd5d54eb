"""The header of a log without a version, rebuilt as that of a run of one policy."""

from __future__ import annotations

from typing import Any, cast

from control_tower.conversion.header import Seen
from control_tower.conversion.ids import rebuilt_log_id
from control_tower.conversion.notes import Notes
from control_tower.conversion.streams import Stream
from control_tower.errors import ValidationError
from control_tower.logs.format import HeaderMetadata
from control_tower.logs.json_text import JsonObject, child
from control_tower.logs.usage import USAGE_KEYS, added, usage_of

TAG = "legacy-run"

_REPLACED = ("eval_id", "run_id", "task_id", "model", "model_roles", "task_registry_name")
_EPOCHS = ("epochs", "epochs_reducer")


def rebuilt_header(header: JsonObject, seen: Seen, stream: Stream | None, notes: Notes) -> JsonObject:
    """The header, with its old scorers.

    Args:
        header: The old one.
        seen: The rebuilt samples.
        stream: As the user said.
        notes: Counts what is done.

    Raises:
        ValidationError: No sample has a task.
    """
    if not seen.mains and not seen.sides:
        raise ValidationError(f"{notes.log}: no sample records a task: the log is too old to convert")
    spec: JsonObject = header["eval"]
    id = rebuilt_log_id(str(spec.get("eval_id") or ""))
    config = child(spec, "config")
    replaced = {key: spec[key] for key in _REPLACED if spec.get(key)}
    replaced |= {key: config[key] for key in _EPOCHS if config.get(key)}
    if (config.get("epochs") or 1) > 1:
        notes.changed("epochs of a sample made samples of their own")
    stats = child(header, "stats")
    return {
        **header,
        "status": header.get("status") or "success",
        "eval": {
            **spec,
            **dict.fromkeys(("eval_id", "run_id", "task_id"), id),
            "task_registry_name": "control_tower/eval",
            "model": "none/none",
            "model_roles": None,
            "config": {key: value for key, value in config.items() if key not in _EPOCHS},
            "dataset": {
                **child(spec, "dataset"),
                "samples": len(seen.summaries),
                "sample_ids": [row["id"] for row in seen.summaries],
                "shuffled": False,
            },
            "metadata": _metadata(spec, seen, stream, replaced),
        },
        "plan": header.get("plan") or {"name": "plan", "steps": []},
        "stats": {
            "started_at": "",
            "completed_at": "",
            **stats,
            **{key: added(usage_of(row, key) for row in seen.summaries) for key in USAGE_KEYS},
        },
    }


def _metadata(spec: JsonObject, seen: Seen, stream: Stream | None, replaced: JsonObject) -> JsonObject:
    old = child(spec, "metadata")
    tags = [*_texts(old.get("tags")), *_texts(spec.get("tags")), TAG]
    fields = HeaderMetadata.model_fields
    return {
        **{name: None for name, field in fields.items() if field.is_required() and name != "white"},
        **old,
        "run_name": spec.get("task"),
        "policy": old.get("policy") or stream or ("attack" if seen.sides else "honest"),
        "tags": list(dict.fromkeys(tags)),
        "replaced": replaced,
    }


def _texts(value: Any) -> list[str]:
    return [str(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []
