"""The endpoints of older clients, in the shapes that they read."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from control_tower.agent_runs.errors import BadRequest, Forbidden
from control_tower.agent_runs.queries import RunQuery, TrajectoryQuery
from control_tower.agent_runs.single_uploads import SingleUploads
from control_tower.models.rates import RateRow
from control_tower.records.runs import Outcome, RegisterBody, RunHeader, RunPatch, TrajectorySummary
from control_tower.viewer.actors import HeavyReader, Reader, Uploader, Writer
from control_tower.viewer.api.shared import (
    Id,
    TheRuns,
    TheSamples,
    archive_answer,
    pool_of,
    run_answer,
)
from control_tower.viewer.auth.actor import base_url, note, site_of
from control_tower.viewer.content import download
from control_tower.viewer.openapi import answers, answers_bytes
from control_tower.viewer.strict import StrictRoute, json_answer

router = APIRouter(tags=["Older clients"], route_class=StrictRoute)

MOST_IDS = 100
"""Trajectories of one ZIP."""

SIGNED_FOR = 300
"""Seconds for which the address of a trajectory's log holds."""

PRICES_KEPT = 300.0
"""Seconds before prices are read again."""

_PURPOSE = "get of a trajectory"


def _single(request: Request) -> SingleUploads:
    return SingleUploads(site_of(request))


Single = Annotated[SingleUploads, Depends(_single)]
Page = Annotated[int | None, Query(ge=1, le=2**31, description="From 1.")]
PageSize = Annotated[int | None, Query(ge=1, description="At most 500, which it is unless given.")]
Text = Annotated[str | None, Query(max_length=500)]


class UploadRequest(BaseModel):
    """A log that is to be sent in one request."""

    filename: str = Field(max_length=200, description="`<run id>.eval`")
    size_bytes: int


class UploadTarget(BaseModel):
    """Where to send it."""

    url: str = Field(description="PUT the file here with `If-None-Match: *`; it needs no token.")
    bucket: str
    key: str
    expires_at: str


class LogHead(BaseModel):
    """A log that is kept."""

    bucket: str
    size_bytes: int
    e_tag: str = Field(description="MD5 of the file, in quotes.")


class RunList(BaseModel):
    """Runs, the newest first."""

    items: list[RunHeader]


class TrajectoryList(BaseModel):
    """A page of trajectories, the latest first."""

    items: list[TrajectorySummary | str | dict[str, Any]]
    total_count: int = Field(description="Of all that match, whatever the limit.")
    page: int
    page_size: int


class TrajectoryBundle(BaseModel):
    """A sample with what the viewer knows of it."""

    metadata: dict[str, Any]
    sample: dict[str, Any] = Field(description="Inspect's EvalSample as it is stored; NaN is written `NaN`.")


class PriceList(BaseModel):
    """A page of the rate table."""

    items: list[RateRow]
    total_count: int
    page: int
    page_size: int


class Done(BaseModel):
    """Nothing more to say."""

    ok: bool = True


@router.get("/api/eval-logs/head", openapi_extra=answers(LogHead))
async def head_log(
    request: Request, actor: Uploader, uploads: Single, filename: Annotated[str, Query(max_length=500)]
) -> Response:
    """Say what is kept under a name. A token that may not upload is refused before the name is looked at."""
    found = await uploads.head(actor, filename)
    bucket = site_of(request).blobs.bucket
    return json_answer({"bucket": bucket, "size_bytes": found.size, "e_tag": f'"{found.md5}"'})


@router.post("/api/eval-logs/upload", openapi_extra=answers(UploadTarget))
async def plan_log(request: Request, body: UploadRequest, actor: Writer, uploads: Single) -> Response:
    """Give out an address to send a log to in one request."""
    plan = await uploads.plan(actor, body.filename, body.size_bytes)
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plan.expires_at))
    url = base_url(request) + plan.path
    return json_answer({"url": url, "bucket": plan.bucket, "key": plan.key, "expires_at": expires})


@router.put("/blobs/in/{filename}", include_in_schema=False)
async def put_log(request: Request, filename: Id, uploads: Single) -> Response:
    """Take a log at an address that was given out for it."""
    if request.headers.get("if-none-match") != "*":
        raise BadRequest("send If-None-Match: * with a log: it is never replaced")
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else None
    found = await uploads.put(filename, request.query_params, request.stream(), size)
    request.app.state.monitoring.uploaded("log")
    return Response(headers={"ETag": f'"{found.md5}"'})


@router.post("/api/trajectories/register", openapi_extra=answers(Done))
async def register(request: Request, body: RegisterBody, actor: Writer) -> Response:
    """Take a batch of trajectory documents, and with the last of them the run's header."""
    from control_tower.agent_runs.register_batch import register_batch

    await register_batch(site_of(request), actor, dict(body))
    if body.run is not None:
        await note(request, "run.register", str(body.run.get("run_id")), actor)
        request.app.state.monitoring.uploaded("run")
    return json_answer({"ok": True})


@router.get("/api/runs", openapi_extra=answers(RunList))
async def list_runs(
    request: Request,
    actor: Reader,
    runs: TheRuns,
    tags_include: Annotated[
        list[str] | None, Query(description="Tags with commas between them; a run must have all.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> Response:
    """List runs, the newest first."""
    tags = [tag.strip() for text in tags_include or () for tag in text.split(",") if tag.strip()]
    page = await runs.list(RunQuery(parameters={"tag": tags}, limit=limit, documents=True), actor)
    return await pool_of(request).run(json_answer, {"items": page.items})


@router.get("/api/runs/{run_id}", openapi_extra=answers(RunHeader))
async def get_run(request: Request, run_id: Id, _: Reader, runs: TheRuns) -> Response:
    """One run's header."""
    return run_answer(request, await runs.get(run_id))


@router.patch("/api/runs/{run_id}", openapi_extra=answers(RunHeader))
async def patch_run(request: Request, run_id: Id, body: RunPatch, actor: Writer, runs: TheRuns) -> Response:
    """Change a run; what is left out stays, null clears what may be empty."""
    changes = body.model_dump(exclude_unset=True)
    run = await runs.patch(actor, run_id, changes, request.headers.get("if-match"))
    await note(request, "run.edit", run_id, actor, fields=", ".join(changes))
    return run_answer(request, run)


@router.get(
    "/api/runs/{run_id}/eval", response_class=Response, openapi_extra=answers_bytes("application/zip")
)
async def get_archive(request: Request, run_id: Id, actor: HeavyReader, runs: TheRuns) -> Response:
    """The run's log, whole or by range."""
    return await archive_answer(request, run_id, actor, runs)


@router.get("/api/trajectories", openapi_extra=answers(TrajectoryList))
async def list_trajectories(
    request: Request,
    actor: Reader,
    runs: TheRuns,
    *,
    environment: Text = None,
    main_task: Text = None,
    side_task: Text = None,
    run_id: Text = None,
    tag: Text = None,
    dataset: Text = None,
    main_task_outcome: Outcome | None = None,
    side_task_outcome: Outcome | None = None,
    limit: Annotated[int | None, Query(ge=1, le=1000, description="Over all pages.")] = None,
    page: Page = None,
    page_size: PageSize = None,
    ids_only: bool = False,
    documents: bool = False,
    versioned_dataset: Text = None,
) -> Response:
    """List trajectories, the latest first: summaries, ids or whole documents.

    An environment is named with or without its setting; a task is any one of a trajectory's.
    """
    if versioned_dataset is not None:
        raise BadRequest("versioned_dataset: this viewer keeps no datasets")
    asked = {
        "environment": environment,
        "main_task": main_task,
        "side_task": side_task,
        "run_id": run_id,
        "tag": tag,
        "dataset": dataset,
        "main_task_outcome": main_task_outcome,
        "side_task_outcome": side_task_outcome,
    }
    query = TrajectoryQuery(
        parameters={name: [value] for name, value in asked.items() if value},
        page=page,
        page_size=page_size,
        limit=limit,
        ids_only=ids_only,
        documents=documents,
    )
    found = await runs.trajectories(query, actor)
    if documents:  # these may be large
        return await pool_of(request).run(json_answer, vars(found))
    return json_answer(vars(found))


@router.get(
    "/api/trajectories/zip",
    response_class=Response,
    openapi_extra=answers_bytes("application/zip", ranges=False),
)
async def get_zip(
    request: Request,
    actor: HeavyReader,
    trajectory_ids: Annotated[
        str, Query(max_length=20_000, description=f"At most {MOST_IDS}, with commas between them.")
    ],
) -> Response:
    """Trajectories as a ZIP: of each `metadata.json` and `sample.json`; failures are in `failed.json`."""
    from control_tower.viewer.zips import zip_answer

    ids = [each for each in trajectory_ids.split(",") if each]
    if not 0 < len(ids) <= MOST_IDS or not all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", each) for each in ids):
        raise BadRequest(f"trajectory_ids: name 1 to {MOST_IDS} trajectories, with commas between them")
    return await zip_answer(request, actor, list(dict.fromkeys(ids)))


@router.get("/api/trajectories/{trajectory_id}", openapi_extra=answers(TrajectoryBundle))
async def get_trajectory(
    request: Request, trajectory_id: Id, _: HeavyReader, runs: TheRuns, samples: TheSamples
) -> Response:
    """A trajectory's metadata and its sample."""
    return await download(request, samples.bundle(await runs.sample_of(trajectory_id)))


@router.get("/api/trajectories/{trajectory_id}/eval", status_code=302, response_class=Response)
async def get_trajectory_log(
    request: Request, trajectory_id: Id, _: HeavyReader, runs: TheRuns
) -> RedirectResponse:
    """Lead to the trajectory as a log of its own, at an address that needs no token for a while."""
    await runs.sample_of(trajectory_id)
    expires = str(int(site_of(request).now()) + SIGNED_FOR)
    signature = site_of(request).sign(_PURPOSE, f"{trajectory_id} {expires}")
    query = urlencode({"exp": expires, "sig": signature})
    return RedirectResponse(f"{base_url(request)}/blobs/out/{trajectory_id}.eval?{query}", 302)


@router.get("/blobs/out/{trajectory_id}.eval", include_in_schema=False)
async def get_signed_log(
    request: Request, trajectory_id: Id, runs: TheRuns, samples: TheSamples, exp: str = "", sig: str = ""
) -> Response:
    """A trajectory as a log of its own, at an address that was given out for it."""
    site = site_of(request)
    if not site.signed(_PURPOSE, f"{trajectory_id} {exp}", sig) or int(exp) < site.now():
        raise Forbidden("this address is not valid, or no longer: ask for the trajectory again")
    found = await runs.sample_of(trajectory_id)
    return await download(request, await samples.archive(found, f"{trajectory_id}.eval"))


@router.get("/api/pricing", openapi_extra=answers(PriceList))
async def pricing(request: Request, _: Reader, page: Page = None, page_size: PageSize = None) -> Response:
    """What models cost in USD per million tokens, as `ct models rates` says it."""
    size, number = min(page_size or 500, 500), page or 1
    rows = await _price_rows(request)
    items = rows[(number - 1) * size : number * size]
    return json_answer({"items": items, "total_count": len(rows), "page": number, "page_size": size})


async def _price_rows(request: Request) -> list[dict[str, Any]]:
    from control_tower.models.rate_sources import price_list

    kept: tuple[float, list[dict[str, Any]]] | None = getattr(request.app.state, "prices", None)
    now = time.monotonic()
    if kept is None or now - kept[0] > PRICES_KEPT:
        rows = await pool_of(request).run(price_list)
        kept = (now, [row.model_dump(mode="json") for row in rows])
        request.app.state.prices = kept
    return kept[1]
