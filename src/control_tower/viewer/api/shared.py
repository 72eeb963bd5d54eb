"""What endpoints share: ids, services of the site, answers with ETags."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Path, Request
from fastapi.responses import Response

from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.uploads import Uploads
from control_tower.viewer.auth.actor import note, site_of
from control_tower.viewer.content import Content, Stored, download, is_head
from control_tower.viewer.pool import Pool
from control_tower.viewer.samples import Samples
from control_tower.viewer.strict import json_answer

if TYPE_CHECKING:
    from control_tower.agent_runs.actor import Actor
    from control_tower.agent_runs.queries import Run

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


def pool_of(request: Request) -> Pool:
    """The threads of the application."""
    return cast(Pool, request.app.state.pool)


def described(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Plain parameters of a list, each of which may be repeated, as OpenAPI describes them."""
    texts: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
    return {
        "parameters": [
            {"name": name, "in": "query", "required": False, "description": text, "schema": texts}
            for name, text in parameters.items()
        ]
    }


def plain_parameters(request: Request, own: Container[str]) -> dict[str, list[str]]:
    """All parameters but an endpoint's own; those that are unknown are left to the service to refuse."""
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name not in own:
            found.setdefault(name, []).append(value)
    return found


def _runs(request: Request) -> Runs:
    return Runs(site_of(request))


def _uploads(request: Request) -> Uploads:
    return Uploads(site_of(request))


def _samples(request: Request) -> Samples:
    return Samples(site_of(request).blobs, pool_of(request))


TheRuns = Annotated[Runs, Depends(_runs)]
TheUploads = Annotated[Uploads, Depends(_uploads)]
TheSamples = Annotated[Samples, Depends(_samples)]


def run_answer(request: Request, run: Run) -> Response:
    """A run's header, or that it has not changed."""
    return tagged(request, run.document, run.e_tag)


def tagged(request: Request, value: Any, e_tag: str) -> Response:
    """A document with its ETag, or that it has not changed."""
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if e_tag.removeprefix("W/") in known:
        return Response(status_code=304, headers={"ETag": e_tag})
    return json_answer(value, headers={"ETag": e_tag})


async def archive_answer(request: Request, run_id: str, actor: Actor, runs: Runs) -> Response:
    """A run's log, whole or by range; the audit trail has those who got most of it at once."""
    archive = await runs.archive_of(run_id)
    size = archive.blob.size
    whole = Stored(site_of(request).blobs, archive.blob, 0, size)
    answer = await download(request, Content([whole], archive.sha256, "application/zip", archive.filename))
    if not is_head(request) and 2 * int(answer.headers.get("content-length", 0)) > size:
        await note(request, "run.download", run_id, actor)
    return answer
