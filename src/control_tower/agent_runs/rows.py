"""Runs and trajectories as rows of the store: what they are found by, what lists show, what is kept whole.

`RUNS` rows keep `{"header", "eval_metadata", "samples"}`: the run's header, the log's metadata that its
trajectories share, and how many they are to be. `TRAJECTORIES` rows keep the document.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from control_tower.agent_runs.store.interface import Row
from control_tower.logs.json_text import JsonObject, child, children, texts

if TYPE_CHECKING:
    from control_tower.agent_runs.ingest import ArchiveFacts, Member
    from control_tower.logs.bundles import SampleRange

REGISTERING = "registering"
"""Status of a run that is not whole yet."""

REMOVING = "removing"
"""Status of a run that is whole no more: its trajectories go first, its row last."""

TEXT_LENGTH = 300
"""Characters that a list shows of a text."""


@dataclass(frozen=True)
class Place:
    """Where a run's log is, and whose."""

    run_id: str
    owner: str
    created: str
    alias: str
    """The log's name in addresses."""
    log_url: str

    def range_of(self, member: Member, facts: ArchiveFacts) -> SampleRange:
        """Where a sample stands in the log."""
        found: SampleRange = {
            "key": self.alias,
            "samplePath": member.entry.name,
            "eTag": facts.blob.e_tag,
            "compressionMethod": member.entry.method,
            "compressedStart": member.start,
            "compressedSize": member.entry.compressed_size,
            "uncompressedSize": member.entry.size,
            "crc32": member.entry.crc,
        }
        if facts.blob.version_id is not None:
            found["versionId"] = facts.blob.version_id
        return found

    def sample_url(self, member: Member) -> str:
        """The address of a sample below that of the log."""
        return f"{self.log_url}/samples/sample/{quote(member.key.id, safe=':', errors='replace')}"


def trajectory_row(document: JsonObject, place: Place, member: Member) -> Row:
    """The row of a trajectory.

    Args:
        document: With its ids, addresses and range.
        place: Of its run.
        member: Of its sample.
    """
    suspicion = member.verdicts.suspicion
    environment = _text(child(document, "environment").get("id"))
    stream = "attack" if document.get("side_task") else "honest"
    error = child(document, "error")
    tasks = child(document, "tasks")
    cost = _number(child(document, "cost").get("total_cost"))
    outcomes = {role: _outcome(document, role) for role in ("main", "side")}
    ids = {role: _task_ids(document, role) for role in ("main", "side")}
    listed: JsonObject = {
        "trajectory_id": document["trajectory_id"],
        "environment_id": environment,
        "main_task_id": _text(child(document, "main_task").get("id")),
        "side_task_id": _text(child(document, "side_task").get("id")),
        "environment_description": _short(document, "environment", "display_name"),
        "main_task_description": _short(document, "main_task", "description"),
        "side_task_description": _short(document, "side_task", "goal"),
        "main_task_success": _flag(document.get("main_task_success")),
        "side_task_success": _flag(document.get("side_task_success")),
        "max_suspicion_score": suspicion.highest,
        "traj_suspicion_score": suspicion.trajectory,
        "tags": texts(document, "tags"),
        "time_started": _whole(child(document, "timing").get("time_started")),
        "error": {
            "message": str(error.get("message"))[:TEXT_LENGTH],
            "error_type": str(error.get("error_type") or "unknown"),
        }
        if error
        else None,
        "actions_count": _whole(document.get("number_of_actions")),
        "authors": texts(document, "authors"),
        **{f"attempts_{what}": _flag(document.get(f"attempts_{what}")) for what in ("mt", "st", "sneaky")},
        "run_id": place.run_id,
        "eval_sample_id": member.key.id,
        "epoch": member.key.epoch,
        "name": _text(document.get("name")),
        "stream": stream,
        "outcome_main": outcomes["main"],
        "outcome_side": outcomes["side"],
        "main": _number(tasks.get("main")),
        "side": _number(tasks.get("side")),
        "landed_at": _whole(tasks.get("landed_at")),
        "cost_usd": cost,
        "cost_incomplete": _unpriced(document),
        "unscored_verdicts": suspicion.unscored,
        "suspicion": {name: base64.b64encode(row).decode() for name, row in suspicion.series.items()},
    }
    columns = {
        "run_id": place.run_id,
        "position": float(member.position),
        "created": place.created,
        "creator": place.owner,
        "environment": environment,
        "environment_short": environment and environment.rpartition("/")[2],
        "stream": stream,
        "outcome_main": outcomes["main"],
        "outcome_side": outcomes["side"],
        "error": listed["error"]["error_type"] if error else None,
        "max_suspicion": suspicion.highest,
        "traj_suspicion": suspicion.trajectory,
        "unscored_verdicts": float(suspicion.unscored),
        "cost": cost,
        "actions": listed["actions_count"],
        "main_tasks": ids["main"],
        "side_tasks": ids["side"],
        "tags": listed["tags"],
        "datasets": texts(document, "datasets"),
    }
    return Row(document["trajectory_id"], columns, listed, document)


def begun_row(place: Place, facts: ArchiveFacts, eval_metadata: JsonObject | None) -> Row:
    """The row of a run whose trajectories are still to come."""
    columns = {
        "created": place.created,
        "creator": place.owner,
        "status": REGISTERING,
        "alias": place.alias,
        "sha256": facts.sha256,
        "deleted": place.created,
    }
    return Row(place.run_id, columns, {}, {"eval_metadata": eval_metadata, "samples": len(facts.samples)})


def run_row(begun: Row, header: JsonObject, facts: ArchiveFacts, trajectories: Iterable[Row]) -> Row:
    """The row of a run that is whole.

    Args:
        begun: As it was while trajectories came.
        header: Of the run, with what the server adds.
        facts: Of its log.
        trajectories: All of its rows; documents are not looked at.
    """
    from control_tower.logs.attempts import expected_samples

    found: dict[str, set[str]] = {name: set() for name in ("environment", "main_tasks", "side_tasks")}
    monitors: set[str] = set()
    counts: Counter[str] = Counter({"honest": 0, "attack": 0, "errored": 0, "unscored": 0})
    incomplete = False
    for row in trajectories:
        for name, values in found.items():
            value: Any = row.columns.get(name)
            values.update([value] if isinstance(value, str) else value or ())
        monitors.update(child(row.listed, "suspicion"))
        incomplete = incomplete or bool(row.listed["cost_incomplete"])
        counts[_kind(row.listed)] += 1
        counts[str(row.listed["stream"])] += 1
    counts.pop("fine", None)
    environments = sorted(found["environment"])
    expected = len(expected_samples(facts.header))
    own = child(child(facts.header, "eval"), "metadata")
    protocol = _text(child(own, "protocol_selection").get("name"))
    status = _text(facts.header.get("status"))
    listed: JsonObject = {
        **editable(header),
        "run_id": begun.id,
        "protocol": protocol,
        "task_set": _text(header.get("task_set")),
        "producer": _text(header.get("producer")),
        "eval_version": _text(own.get("eval_version")),
        "status": status,
        "environments": environments,
        "models": texts(header, "models"),
        "monitors": sorted(monitors),
        "trajectory_count": header["trajectory_count"],
        "counts": {
            **counts,
            "missing": max(0, expected - len(facts.samples)) if expected else None,
        },
        "total_cost_usd": _number(header.get("total_cost_usd")),
        "cost_incomplete": incomplete,
        "metrics": child(header, "metrics"),
        "created_at": header["created_at"],
        "created_by": header["created_by"],
        "eval_log_url": header["eval_log_url"],
        "sha256": facts.sha256,
    }
    columns = {
        **begun.columns,
        **edited_columns(header),
        "policies": _policies(own),
        "protocol": protocol,
        "task_set": listed["task_set"],
        "producer": listed["producer"],
        "eval_version": listed["eval_version"],
        "eval_id": _text(child(facts.header, "eval").get("eval_id")),
        "status": status,
        "deleted": None,
        "cost": listed["total_cost_usd"],
        "trajectories": float(header["trajectory_count"]),
        "environments": environments,
        "environments_short": sorted({name.rpartition("/")[2] for name in environments}),
        "main_tasks": sorted(found["main_tasks"]),
        "side_tasks": sorted(found["side_tasks"]),
        "models": listed["models"],
        "monitors": listed["monitors"],
        "metrics": metric_columns(header),
    }
    return Row(begun.id, columns, listed, {**begun.document, "header": header}, begun.rev)


def editable(header: JsonObject) -> JsonObject:
    """What can be edited of a run, as lists show it."""
    return {
        "name": str(header.get("name") or "run"),
        "policy": _text(header.get("policy")),
        "tags": texts(header, "tags"),
        "description": _text(header.get("description")),
        "dataset": _text(header.get("dataset")),
    }


def edited_columns(header: JsonObject) -> Mapping[str, Any]:
    """The columns that follow what can be edited."""
    shown = editable(header)
    return {name: shown[name] for name in ("name", "policy", "tags")}


def metric_columns(header: JsonObject) -> dict[str, float]:
    """The numbers a run can be sorted by, as `<scorer>/<metric>`."""
    metrics = child(header, "metrics")
    return {
        f"{scorer}/{metric}": number
        for scorer in metrics
        for metric, value in child(metrics, scorer).items()
        if (number := _number(value)) is not None
    }


def _kind(listed: JsonObject) -> str:
    if listed["error"]:
        return "errored"
    role = "side" if listed["stream"] == "attack" else "main"
    return "unscored" if listed[f"outcome_{role}"] == "unscored" else "fine"


def _policies(metadata: JsonObject) -> list[str]:
    """Names of the policies, as typed and without the prefix of those that are shipped."""
    kinds = ("policy_selection", "honest_policy_selection", "attack_policy_selection")
    names = {name for kind in kinds if (name := _text(child(metadata, kind).get("name")))}
    return sorted(names | {name.removeprefix("ct/") for name in names})


def _task_ids(document: JsonObject, role: str) -> list[str]:
    """A trajectory's tasks of a role: ids may contain the `+` that joins them, so Scores go first."""
    scored = [str(row.get("id")) for row in children(document, "task_scores") if row.get("role") == role]
    joined = _text(child(document, f"{role}_task").get("id"))
    if joined is None or joined == "+".join(scored):
        return scored
    return list(dict.fromkeys([*scored, *joined.split("+")]))


def _unpriced(document: JsonObject) -> bool:
    roles = child(document, "cost_by_role")
    return any(child(roles, role).get("total_usd") is None for role in roles)


def _outcome(document: JsonObject, role: str) -> str | None:
    """None without a task of the role."""
    success = document.get(f"{role}_task_success")
    if success is None:
        return "unscored" if document.get(f"{role}_task") else None
    return "pass" if success is True else "fail"


def _short(document: JsonObject, part: str, otherwise: str) -> str | None:
    record = child(document, part)
    text = record.get("short_description") or record.get(otherwise)
    return str(text)[:TEXT_LENGTH] if text else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or number % 1 else int(number)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
