"""The header of a control-eval log made of two runs: what they agree on, and both policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from control_tower.conversion.ids import merged_log_id
from control_tower.conversion.sample import CONVERTED_FROM
from control_tower.conversion.streams import policy_name
from control_tower.logs.archive import DERIVED
from control_tower.logs.format import HeaderMetadata
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.usage import USAGE_KEYS, added, usage_of
from control_tower.records.scores import RESERVED_SCORES, TASKS_SCORE, WORKSPACE_DIFF_SCORE

STREAMS = ("honest", "attack")


def merged_header(
    honest: JsonObject, attack: JsonObject, origins: tuple[str, str], rows: Sequence[JsonObject]
) -> tuple[JsonObject, tuple[str, ...]]:
    """The header, without results.

    Args:
        honest: That of the honest run.
        attack: That of the attack run.
        origins: What `converted_from` calls them.
        rows: The summaries of all samples.

    Returns:
        The header, and the keys of the runs' metadata that it does not have.
    """
    both = (honest, attack)
    specs = (honest["eval"], attack["eval"])
    metadata, dropped = _metadata(child(specs[0], "metadata"), child(specs[1], "metadata"))
    metadata[CONVERTED_FROM] = list(origins)
    ids = list(dict.fromkeys(row["id"] for row in rows))
    unfinished = next((header for header in both if header.get("status") != "success"), honest)
    header: JsonObject = {
        **{key: value for key, value in honest.items() if key not in DERIVED | {"error", "results"}},
        "status": unfinished.get("status"),
        "eval": {
            **specs[0],
            "eval_id": merged_log_id(*(str(spec.get("eval_id")) for spec in specs)),
            "task": metadata["run_name"],
            "task_registry_name": "control_tower/control_eval",
            "task_args": _task_args(*specs, "task_args", metadata),
            "task_args_passed": _task_args(*specs, "task_args_passed", metadata),
            "dataset": {**child(specs[0], "dataset"), "samples": len(ids), "sample_ids": ids},
            "config": _config(*(child(spec, "config") for spec in specs)),
            "scorers": _scorers(both, _side_names(rows)),
            "metadata": metadata,
        },
        "stats": _stats(both),
    }
    if unfinished.get("error"):
        header["error"] = unfinished["error"]
    if any(one.get("invalidated") for one in both):
        header["invalidated"] = True
    return header, dropped


def _metadata(honest: JsonObject, attack: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    known = HeaderMetadata.model_fields
    agreed = {key: honest[key] for key in known if key in honest and honest[key] == attack.get(key, _NOTHING)}
    protocol = child(honest, "protocol_selection").get("name")
    names = [policy_name(metadata) for metadata in (honest, attack)]
    policy = "+".join(names) + (f"-vs-{protocol}" if protocol else "")
    task_set = honest.get("task_set")
    metadata: JsonObject = {
        **{key: None for key, field in known.items() if field.is_required()},
        **agreed,
        "eval_version": min((str(one["eval_version"]) for one in (honest, attack)), key=_version),
        "policy": policy,
        "run_name": f"{policy}-{task_set}" if task_set else policy,
        "task_set": task_set,
        "tags": list(dict.fromkeys([*_listed(honest.get("tags")), *_listed(attack.get("tags"))])),
        "task_selection": _task_selection(honest, attack),
        "policy_selection": None,
        "policy_args": None,
        "model_roles": {**child(attack, "model_roles"), **child(honest, "model_roles")},
        "env_versions": _env_versions(honest, attack),
        "eval_args": _eval_args(honest, attack),
    }
    for stream, one, name in zip(STREAMS, (honest, attack), names, strict=True):
        metadata[f"{stream}_policy_selection"] = one.get("policy_selection") or {"name": name, "args": {}}
        metadata[f"{stream}_policy_args"] = one.get("policy_args")
    settled = {
        "policy_selection",
        "policy_args",
        CONVERTED_FROM,
        "policy",
        "run_name",
        "tags",
        "eval_version",
    }
    settled |= {"task_selection", "model_roles", "env_versions", "eval_args"}
    given = dict.fromkeys(key for one in (honest, attack) for key in one if one[key] is not None)
    return metadata, tuple(key for key in given if key not in agreed and key not in settled)


_NOTHING = object()


def _task_selection(honest: JsonObject, attack: JsonObject) -> JsonObject | None:
    one, other = child(honest, "task_selection"), child(attack, "task_selection")
    if not one or not other:
        return None
    files = [*_listed(one.get("task_file")), *_listed(other.get("task_file"))]
    agreed = {key: one[key] for key in one if key in other and one[key] == other[key]}
    return {**agreed, "task_file": files or None}


def _env_versions(honest: JsonObject, attack: JsonObject) -> JsonObject | None:
    versions: JsonObject = {}
    for given in (child(honest, "env_versions"), child(attack, "env_versions")):
        for env in given:
            known, found = child(versions, env), child(given, env)
            versions.setdefault(env, given[env])
            if known and not known.get("image_digest") and found.get("image_digest"):
                versions[env] = {**known, "image_digest": found["image_digest"]}
    return versions or None


def _eval_args(honest: JsonObject, attack: JsonObject) -> JsonObject | None:
    one, other = child(honest, "eval_args"), child(attack, "eval_args")
    if not one and not other:
        return None
    either = bool(one.get("score_main_on_attack") or other.get("score_main_on_attack"))
    return {**(one or other), "score_main_on_attack": either}


def _task_args(honest: JsonObject, attack: JsonObject, key: str, metadata: JsonObject) -> JsonObject:
    one, other = child(honest, key), child(attack, key)
    agreed = {name: one[name] for name in one if name in other and one[name] == other[name]}
    agreed.pop("policy", None)
    policies = {
        f"{stream}_policy": given["policy"]
        for stream, given in zip(STREAMS, (one, other), strict=True)
        if given.get("policy")
    }
    replaced = ("task_selection", "run_name", "tags", "model_roles")
    return {**agreed, **policies, **{name: metadata[name] for name in replaced if name in one}}


def _config(honest: JsonObject, attack: JsonObject) -> JsonObject:
    """The honest run's, with as many epochs as the run that has more."""
    epochs = max(int(config.get("epochs") or 1) for config in (honest, attack))
    return {**honest, "epochs": epochs} if epochs > 1 else honest


def _scorers(headers: Iterable[JsonObject], sides: set[str]) -> list[JsonObject]:
    found: dict[str, JsonObject] = {}
    for header in headers:
        for scorer in children(header["eval"], "scorers"):
            found.setdefault(str(scorer.get("name")), scorer)
    tasks = [name for name in found if name not in RESERVED_SCORES and _has_mean(found[name])]
    tasks.sort(key=lambda name: name not in sides)
    order = [WORKSPACE_DIFF_SCORE, *tasks, TASKS_SCORE, *found]
    return [found[name] for name in dict.fromkeys(order) if name in found]


def _has_mean(scorer: JsonObject) -> bool:
    return [metric.get("name") for metric in children(scorer, "metrics")] == ["inspect_ai/mean"]


def _side_names(rows: Iterable[JsonObject]) -> set[str]:
    """Names of the Scores of side tasks: they alone say when they landed."""
    return {
        name
        for row in rows
        for name in child(row, "scores")
        if "landed_at" in child(child(child(row, "scores"), name), "metadata")
    }


def _stats(headers: Sequence[JsonObject]) -> JsonObject:
    stats = [child(header, "stats") for header in headers]
    began = [str(one["started_at"]) for one in stats if one.get("started_at")]
    ended = [str(one["completed_at"]) for one in stats if one.get("completed_at")]
    merged: JsonObject = {
        "started_at": min(began, default=""),
        "completed_at": max(ended, default=""),
        **{key: added(usage_of(one, key) for one in stats) for key in USAGE_KEYS},
    }
    if history := [change for one in stats for change in children(one, "connection_limit_history")]:
        merged["connection_limit_history"] = history
    return merged


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]
