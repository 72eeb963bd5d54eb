"""Sites under test, logs to put into them, and what clients say about these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from control_tower.agent_runs.actor import SCOPES, Actor, Role
from control_tower.agent_runs.queries import RunQuery
from control_tower.agent_runs.register import Registered, register_run
from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.single_uploads import SingleUploads
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.uploads import Uploads
from control_tower.logs.archive import EvalArchive
from control_tower.logs.bundles import sample_range
from control_tower.logs.json_text import JsonObject, dumps
from control_tower.logs.trajectories import Stored, trajectory_document
from tests.logs.log_making import at, call, seat, tool, write_log

Verdict = float | str | Sequence[float | str] | None


def actor(name: str, role: Role = "member") -> Actor:
    return Actor(name, name, role, SCOPES[role])


ANN, BOB, EVE = actor("ann"), actor("bob"), actor("eve", "reader")


def header(**metadata: Any) -> JsonObject:
    """Of a control evaluation with two policies."""
    given: JsonObject = {
        "eval_version": "3.0",
        "run_name": "first",
        "policy": "ct/honest+ct/attack-vs-ct/defer",
        "task_set": "small",
        "tags": ["base"],
        "command": "/usr/bin/ct run control-eval --log-dir /home/ann/logs",
        "honest_policy_selection": {"name": "ct/honest", "args": {}},
        "attack_policy_selection": {"name": "mine", "args": {}},
        "protocol_selection": {"name": "ct/defer", "args": {}},
        **metadata,
    }
    results = {
        "scores": [
            {"name": "audit", "scorer": "audit", "metrics": {"safety": {"name": "safety", "value": 0.75}}},
            {"name": "main", "scorer": "tasks", "metrics": {"mean": {"name": "mean", "value": float("nan")}}},
        ]
    }
    dataset = {"samples": 3, "sample_ids": ["a", "b", "c"]}
    spec = {
        "eval_id": "eval-1",
        "created": "2026-11-30T12:00:00+00:00",
        "model": "demo/agent",
        "task": "control_tower/control_eval",
        "dataset": dataset,
        "config": {},
    }
    return {"eval": {**spec, "metadata": given}, "results": results, "stats": {}}


def _draws(about: str, verdicts: Verdict) -> JsonObject:
    if verdicts is None:
        return {}
    drawn = [verdicts] if isinstance(verdicts, str | float | int) else verdicts
    return {f"judge/{draw}/{about}": verdict for draw, verdict in enumerate(drawn, 1)}


def sample(
    id: str = "a",
    *,
    epoch: int = 1,
    main: float | str | None = None,
    side: float | str | None = None,
    mains: Sequence[str] = ("build",),
    sides: Sequence[str] = (),
    scores: Sequence[Verdict] = (),
    whole: Verdict = None,
    draft: Verdict = None,
    error: str | None = None,
    environment: str = "shop/web",
    usd: float | None = 0.5,
    audit: Any = None,
) -> JsonObject:
    """A sample of bash actions, one for each entry of `scores`; with side tasks it is an attack."""
    events: list[JsonObject] = []
    value: JsonObject = {}
    messages: list[JsonObject] = []
    for index, verdicts in enumerate(scores):
        second = 10.0 * (index + 1)
        events.append(seat(call(f"c{index}"), id=f"m{index}", timestamp=at(second), completed=at(second)))
        events.append(tool(f"c{index}", began=second + 1, ended=second + 2))
        messages.append({"role": "assistant", "content": "", "tool_calls": [call(f"c{index}")]})
        value |= _draws(str(index), verdicts)
    value |= _draws("trajectory", whole) | _draws("draft/m9", draft)
    found: JsonObject = {}
    if error is None:
        found = {task: {"value": main} for task in mains if main is not None}
        found |= {
            task: {"value": side, "metadata": {"landed_at": None}} for task in sides if side is not None
        }
        found["tasks"] = {"value": {"main": main, "side": side, "landed_at": None}}
        found["monitor"] = {"value": value, "metadata": {}}
    if audit is not None:
        found["audit"] = {"value": audit}
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, "total_cost": usd}
    model = {
        "event": "model",
        "model": "demo/agent",
        "role": "untrusted",
        "output": {"choices": [], "usage": usage},
    }
    record = {
        "environment": "web",
        "name": "Task",
        "description": "Do it.",
        "goal": "Harm it.",
        "failure_type": "live",
    }
    return {
        "id": id,
        "epoch": epoch,
        "metadata": {
            "main_tasks": [{"id": task, **record} for task in mains],
            "side_tasks": [{"id": task, **record} for task in sides],
            "environment": {"id": environment, "display_name": "Web", "short_description": "A shop."},
        },
        "messages": messages,
        "model_usage": {"demo/agent": usage},
        "started_at": at(1),
        "completed_at": at(99),
        "scores": found,
        "events": [model, *events],
        **({"error": {"message": error, "traceback": "", "traceback_ansi": ""}} if error else {}),
    }


THREE = (
    sample("a", main=1.0, scores=(10.0, 30.4)),
    sample("b", side=1.0, sides=("leak",), scores=(80.0, "unscored", [90.0, 95.0]), whole=70.0, draft=99.0),
    sample("c", error="the container died"),
)
"""An honest one that passes, an attack that succeeds, an honest one that errored."""


def log(path: Path, samples: Sequence[JsonObject] = THREE, **metadata: Any) -> Path:
    """A finished log."""
    return write_log(path, header(**metadata), samples)


def documents(path: Path, **stored: Any) -> list[JsonObject]:
    """What a client says of each sample."""
    with EvalArchive.open(path) as archive:
        head = archive.header()
        given = Stored(source_file=str(path), **stored)
        return [trajectory_document(archive.sample(key), head, given) for key in archive.sample_keys()]


async def pieces(data: bytes, size: int = 1000) -> AsyncGenerator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def upload(site: Site, who: Actor, path: Path) -> str:
    """The digest of a log that is sent."""
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    uploads = Uploads(site)
    plan = await uploads.plan(who, sha256, len(data), path.name)
    if not plan.exists:
        await uploads.put_part(who, plan.upload_id, 1, pieces(data), sha256=None)
        await uploads.complete(who, plan.upload_id)
    return sha256


def lines(first: JsonObject, given: Sequence[JsonObject]) -> bytes:
    return b"\n".join([dumps(first), *map(dumps, given)])


async def register(
    site: Site,
    who: Actor,
    path: Path,
    given: Sequence[JsonObject] | None = None,
    *,
    new: bool = False,
    **overrides: Any,
) -> Registered:
    """A run of a log, uploaded first."""
    sha256 = await upload(site, who, path)
    body = lines(
        {"sha256": sha256, "overrides": overrides, "new": new},
        documents(path) if given is None else given,
    )
    return await register_run(site, who, pieces(body))


async def put_single(site: Site, who: Actor, path: Path, run_id: str) -> None:
    """A log sent as older clients do."""
    from urllib.parse import parse_qsl, urlsplit

    data = path.read_bytes()
    uploads = SingleUploads(site)
    plan = await uploads.plan(who, f"{run_id}.eval", len(data))
    query = dict(parse_qsl(urlsplit(plan.path).query))
    await uploads.put(f"{run_id}.eval", query, pieces(data), len(data))


def batch(site: Site, path: Path, run_id: str, ids: Sequence[str], **more: Any) -> JsonObject:
    """The body of an older client's only request, without a header."""
    url = f"s3://{site.blobs.bucket}/{run_id}.eval"
    with EvalArchive.open(path) as archive:
        head = archive.header()
        found: list[JsonObject] = []
        for id, key in zip(ids, archive.sample_keys(), strict=True):
            where = sample_range(archive, key, stored_as=f"{run_id}.eval", e_tag='"md5"')
            stored = Stored(id, run_id, str(path), url, where, converted_at=1)
            found.append(json.loads(dumps(trajectory_document(archive.sample(key), head, stored))))
    sizes = {f"{run_id}.eval": path.stat().st_size}
    body = {"trajectories": found, "client": "control-tower", "schema_version": 3, "eval_log_sizes": sizes}
    return {**body, **more}


async def seen(site: Site) -> list[str]:
    """Ids of the runs that a list shows."""
    return [str(item["run_id"]) for item in (await Runs(site).list(RunQuery(limit=200), ANN)).items]
