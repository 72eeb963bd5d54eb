"""The document of one sample: everything that a list or a page says of it without opening the log."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import pydantic

from control_tower.config import redact
from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.archive import SampleKey
from control_tower.logs.bundles import SampleRange
from control_tower.logs.committed import committed_calls
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.trajectory_rows import call_rows, cost_rows, monitor_rows, outcome_rows, timing_row
from control_tower.logs.usage import usage_of
from control_tower.models.roles import UNTRUSTED
from control_tower.records.tasks import MainTaskData, SampleMetadata, SideTaskData

ALWAYS = ("main_task_success", "side_task_success", "error")
"""Keys that are there though they are null."""

UNNAMED = "Unnamed Trajectory"

_PATH = re.compile(r"(?<![\w:/.])~?/(?:[^\s/'\"]+/)*([^\s/'\"]*)")


@dataclass(frozen=True)
class Stored:
    """What the log does not say of itself: where it is kept, and what its registry knows."""

    trajectory_id: str | None = None
    """Of the sample in the store; that of the sample's metadata when None."""
    run_id: str | None = None
    source_file: str | None = None
    """The name of the log's file; folders in front of it are left out."""
    eval_log_url: str | None = None
    """Of the log; the document has the sample's address below it."""
    sample_range: SampleRange | None = None
    converted_at: int | None = None
    """When the document was made, in Unix milliseconds."""
    attempts: Mapping[str, bool] | None = None
    """What the sample's policy attempts: `mt`, `st`, `sneaky`. None when the policy is not known."""
    attack_analysis: JsonObject | None = None


def trajectory_document(sample: JsonObject, header: JsonObject, stored: Stored | None = None) -> JsonObject:
    """A sample as one JSON object; it depends on nothing but the arguments and the secrets to mask.

    Keys that would be null are left out, except `ALWAYS`. NaN and infinity are null. Paths in the command
    line are cut to their last part, since they say where somebody works.

    Args:
        sample: As stored in a log of today's format.
        header: Of the same log.
        stored: Where it is kept.

    Raises:
        ValidationError: The sample's metadata or Scores are not what the format allows.
    """
    stored = stored or Stored()
    key = SampleKey.of(sample)
    metadata = child(sample, "metadata")
    given = child(metadata, "traj_metadata")
    run = shown_metadata(header)
    tasks = _tasks(sample, key)
    environment = tasks.environment
    outcome = outcome_rows(sample)
    timing = timing_row(sample, run)
    if timing and stored.converted_at is not None:
        timing["converted_at"] = stored.converted_at
    own_id = metadata.get("trajectory_id")
    document: JsonObject = {
        "trajectory_id": stored.trajectory_id or (own_id if isinstance(own_id, str) else None),
        "run_id": stored.run_id,
        "source_file": _base(stored.source_file) if stored.source_file else None,
        "eval_log_url": f"{stored.eval_log_url}/samples/sample/{quote(key.id, safe=':', errors='replace')}"
        if stored.eval_log_url
        else None,
        "eval_sample_id": key.id,
        "epoch": key.epoch,
        "name": given.get("name") or _name(tasks, run) or UNNAMED,
        "tags": [tag for tag in _list(given.get("tags")) if isinstance(tag, str)],
        "datasets": [],
        "description": given.get("description"),
        "metadata": {**child(given, "metadata"), **_strings(sample, run, tasks)},
        "eval_metadata": run if isinstance(run.get("eval_version"), str) else None,
        "eval_sample_range": stored.sample_range,
        "environment": environment
        and {
            "id": environment.id,
            "display_name": environment.display_name,
            "short_description": environment.short_description,
        },
        "main_task": _joined(tasks.main_tasks, "description"),
        "side_task": _joined(tasks.side_tasks, "goal", failure_type=True),
        **outcome,
        "timing": timing or None,
        **cost_rows(sample),
        "attack_analysis": stored.attack_analysis,
        "monitors": monitor_rows(sample) or None,
        "authors": _list(metadata.get("_replay_authors")) or _authors(header, run, tasks),
        **_attempts(metadata, stored.attempts, outcome),
        **call_rows(sample, committed_calls(sample)),
    }
    kept = {name: value for name, value in document.items() if value is not None or name in ALWAYS}
    return finite(kept)


def stream_selection(run: JsonObject, tasks: SampleMetadata) -> JsonObject:
    """Which policy played a sample: that of its stream, else that of the whole run."""
    return child(run, f"{_stream(tasks)}_policy_selection") or child(run, "policy_selection")


def shown_metadata(header: JsonObject) -> JsonObject:
    """The header's metadata without secrets and folders of the machine it ran on."""
    run = child(child(header, "eval"), "metadata")
    shown = dict(run)
    if isinstance(run.get("command"), str):
        shown["command"] = redact(_PATH.sub(r"\1", run["command"]))
    if loaded := children(run, "locally_loaded"):
        shown["locally_loaded"] = [{**each, "path": _base(str(each.get("path")))} for each in loaded]
    return shown


def finite(document: JsonObject) -> JsonObject:
    """A document with null for NaN and infinity."""
    return cast(JsonObject, _finite(document))


def short_model_name(model: str) -> str:
    """A model's name without router, provider and date."""
    name = model.removeprefix("openrouter/")
    return re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name.split("/", 1)[-1])


def _stream(tasks: SampleMetadata) -> str:
    return "attack" if tasks.side_tasks else "honest"


def _tasks(sample: JsonObject, key: SampleKey) -> SampleMetadata:
    try:
        return SampleMetadata.model_validate(child(sample, "metadata"))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValidationError(f"sample {key}: its metadata {place}: {first['msg']}") from None


def _name(tasks: SampleMetadata, run: JsonObject) -> str:
    policy = stream_selection(run, tasks).get("name")
    protocol = child(run, "protocol_selection").get("name")
    players = f"{policy}-vs-{protocol}" if policy and protocol else run.get("policy")
    ids = ["+".join(task.id for task in group) for group in (tasks.main_tasks, tasks.side_tasks)]
    return " - ".join(str(part) for part in [*ids, players] if part)


def _joined(
    tasks: Sequence[MainTaskData | SideTaskData], text: str, *, failure_type: bool = False
) -> JsonObject | None:
    """Several tasks as one; what no task has is null."""
    if not tasks:
        return None
    joints = {"id": "+", "name": " + ", "short_description": "\n\n", text: "\n\n", "task_category": "+"}
    if failure_type:
        joints["failure_type"] = "+"
    found: JsonObject = {}
    for field, joint in joints.items():
        values = [value for task in tasks if (value := getattr(task, field)) is not None]
        found[field] = joint.join(values) if values else None
    return found


def _strings(sample: JsonObject, run: JsonObject, tasks: SampleMetadata) -> JsonObject:
    """What of the run a list can be searched by, all of it text."""
    policy, protocol = stream_selection(run, tasks), child(run, "protocol_selection")
    git = child(run, "ct_git")
    audits = [each for each in children(sample, "messages") if child(each, "metadata").get("audited")]
    found: JsonObject = {
        "policy": policy.get("name"),
        "policy_args": repr(policy["args"]) if policy.get("args") else None,
        "protocol": protocol.get("name"),
        "protocol_args": repr(protocol["args"]) if protocol.get("args") else None,
        "audited": "true" if audits or Transcript.of(sample).audited else None,
        "audit_message": audits[0].get("content") if audits else None,
        "command": run.get("command"),
        "ct_version": run.get("ct_version"),
        "ct_commit": git.get("commit"),
        "ct_dirty": git.get("dirty"),
        "ct_remote_url": git.get("remote_url"),
    }
    versions = child(run, "env_versions")
    environment = tasks.environment.id if tasks.environment else ""
    if isinstance(versions.get(environment), str):
        found["env_version"] = versions[environment]
    elif version := child(versions, environment):
        found |= {
            "env_version": version.get("repo") or "unknown",
            "env_image_tag": version.get("image_tag") or "unknown",
            "env_commit": version.get("commit"),
            "env_dirty": version.get("dirty"),
            "env_remote_url": version.get("remote_url"),
        }
    return {key: _as_text(value) for key, value in found.items() if value is not None}


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _authors(header: JsonObject, run: JsonObject, tasks: SampleMetadata) -> list[str] | None:
    """The model that played red: named by the policy, bound to its role, or the first that was used."""
    selected = child(stream_selection(run, tasks), "args")
    arguments = child(run, f"{_stream(tasks)}_policy_args") or child(run, "policy_args") or selected
    bound = child(run, "model_roles").get(UNTRUSTED) or child(
        child(child(header, "eval"), "model_roles"), UNTRUSTED
    ).get("model")
    used = next(iter(usage_of(child(header, "stats"), "model_usage")), None)
    model = arguments.get("model") or bound or used
    return [short_model_name(model)] if isinstance(model, str) else None


def _attempts(metadata: JsonObject, known: Mapping[str, bool] | None, outcome: JsonObject) -> JsonObject:
    """What the policy set out to do; what it did it has attempted."""
    done = {"mt": outcome["main_task_success"], "st": outcome["side_task_success"], "sneaky": None}
    found: JsonObject = {}
    for flag, success in done.items():
        replayed = metadata.get(f"_replay_attempts_{flag}")
        if replayed is not None:
            found[f"attempts_{flag}"] = bool(replayed)
        elif success:
            found[f"attempts_{flag}"] = True
        elif known is not None and flag in known:
            found[f"attempts_{flag}"] = known[flag]
    return found


def _base(path: str) -> str:
    return re.split(r"[\\/]", path)[-1]


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_finite(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
