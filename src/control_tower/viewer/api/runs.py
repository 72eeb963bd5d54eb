"""Runs: found, looked at, changed, measured and compared."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.filters import RUN_PARAMETERS
from control_tower.agent_runs.queries import RunQuery
from control_tower.errors import did_you_mean
from control_tower.records.runs import RunHeader, RunPatch, RunRow, TrajectoryRow
from control_tower.viewer.actors import HeavyReader, Reader, Uploader, Writer
from control_tower.viewer.api.shared import (
    Id,
    TheRuns,
    archive_answer,
    described,
    plain_parameters,
    run_answer,
)
from control_tower.viewer.auth.actor import base_url, note, site_of
from control_tower.viewer.openapi import Document, answers, answers_bytes
from control_tower.viewer.strict import StrictRoute, json_answer

router = APIRouter(prefix="/api/v1", tags=["Runs"], route_class=StrictRoute)

Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=4000, description="`next` of the page before.")]

_LINES = {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
_FACETS = frozenset({"q", "field", "limit"})
_LIST = frozenset({"q", "sort", "cursor", "limit", "fields", "count"})


class RunPage(BaseModel):
    """A page of runs."""

    items: list[RunRow]
    next: str | None = Field(description="`cursor` of the next page; null at the end.")
    total: int | None = Field(
        description="Of all that match, null unless `count=exact`; as old as facets may be."
    )


class TrajectoryPage(BaseModel):
    """A page of a run's trajectories, in the order of its log."""

    items: list[TrajectoryRow]
    next: str | None
    total: int | None


class Facets(BaseModel):
    """By field the values that runs have, the most frequent first, each with the number of its runs."""

    facets: dict[str, list[dict[str, Any]]]


class File(BaseModel):
    """A member of a log."""

    name: str
    size: int
    compressed_size: int
    method: str | int


class Files(BaseModel):
    """The members of a log."""

    items: list[File]


class Registered(BaseModel):
    """A run that is there now."""

    run_id: str
    url: str
    trajectories: int
    existing: bool = Field(description="Whether it was there before.")
    eval_log_url: str


@router.get("/runs", openapi_extra=answers(RunPage, **described(RUN_PARAMETERS)))
async def list_runs(
    request: Request,
    actor: Reader,
    runs: TheRuns,
    *,
    q: Annotated[str, Query(max_length=2000, description="In the filter language.")] = "",
    sort: Annotated[
        str,
        Query(
            max_length=300,
            description="`created`, `name`, `cost`, `trajectories` or `metric(<name>)`; behind a `-`, the"
            " highest first.",
        ),
    ] = "-created",
    cursor: Cursor = None,
    limit: Limit = 20,
    fields: Annotated[
        str | None, Query(max_length=1000, description="Only these, with commas between.")
    ] = None,
    count: Annotated[str, Query(pattern="^(exact|none)$")] = "none",
) -> Response:
    """List runs by filters."""
    parameters = plain_parameters(request, _LIST)
    query = RunQuery(q, parameters, sort, cursor, limit, count=count == "exact")
    wanted = _wanted(fields)
    page = await runs.list(query, actor)
    items = [{k: v for k, v in item.items() if k in wanted} for item in page.items] if wanted else page.items
    return json_answer({"items": items, "next": page.next, "total": page.total})


@router.post(
    "/runs",
    status_code=201,
    openapi_extra={**answers(Registered, 200, 201), "requestBody": _LINES},
)
async def register(request: Request, actor: Uploader) -> Response:
    """Make a run of an uploaded log. The body is JSON lines: what is asked for, then the trajectories."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-ndjson":
        raise BadRequest("send JSON lines, with Content-Type: application/x-ndjson")
    from control_tower.agent_runs.register import register_run

    made = await register_run(site_of(request), actor, request.stream())
    if not made.existing:
        await note(request, "run.register", made.run_id, actor)
        request.app.state.monitoring.uploaded("run")
    answer = {
        "run_id": made.run_id,
        "url": f"{base_url(request)}/runs/{made.run_id}",
        "trajectories": made.trajectories,
        "existing": made.existing,
        "eval_log_url": made.eval_log_url,
    }
    return json_answer(answer, 200 if made.existing else 201)


@router.get("/runs/compare", openapi_extra=answers(Document))
async def compare(
    request: Request,
    _: HeavyReader,
    runs: TheRuns,
    ids: Annotated[
        str,
        Query(
            max_length=260,
            description="Two runs with a comma between; differences are the second minus the first.",
        ),
    ],
) -> Response:
    """Compare two runs by the samples that both have: flips, rates, costs, and what only one has."""
    from control_tower.viewer.measuring import measuring_of

    named = ids.split(",")
    if len(named) != 2:
        raise BadRequest("ids: name two runs, with a comma between them")
    a, b = [await runs.archive_of(each) for each in named]
    return json_answer(await measuring_of(request).comparison(a, b))


@router.get("/facets", openapi_extra=answers(Facets, **described(RUN_PARAMETERS)))
async def facets(
    request: Request,
    actor: Reader,
    runs: TheRuns,
    *,
    q: Annotated[str, Query(max_length=2000)] = "",
    field: Annotated[
        list[str] | None, Query(max_length=50, description="Of these only; may be repeated.")
    ] = None,
    limit: Limit = 50,
) -> Response:
    """The values by which runs can be filtered, with how many runs have each.

    They were counted less than two seconds ago, or than twenty times what counting took if that is more, and
    after every change that this server process has made since.
    """
    query = RunQuery(q, plain_parameters(request, _FACETS))
    return json_answer({"facets": await runs.facets(query, actor, limit, field or ())})


@router.get("/runs/{run_id}", openapi_extra=answers(RunHeader))
async def get_run(request: Request, run_id: Id, _: Reader, runs: TheRuns) -> Response:
    """One run's header."""
    return run_answer(request, await runs.get(run_id))


@router.patch("/runs/{run_id}", openapi_extra=answers(RunHeader))
async def patch_run(request: Request, run_id: Id, body: RunPatch, actor: Writer, runs: TheRuns) -> Response:
    """Change a run; what is left out stays. With `If-Match` only if nobody else has changed it."""
    changes = body.model_dump(exclude_unset=True)
    run = await runs.patch(actor, run_id, changes, request.headers.get("if-match"))
    await note(request, "run.edit", run_id, actor, fields=", ".join(changes))
    return run_answer(request, run)


@router.delete("/runs/{run_id}", status_code=204)
async def delete_run(request: Request, run_id: Id, actor: Writer, runs: TheRuns) -> Response:
    """Hide a run. It can be restored for 30 days."""
    await runs.delete(actor, run_id)
    await note(request, "run.delete", run_id, actor)
    return Response(status_code=204)


@router.post("/runs/{run_id}/restore", openapi_extra=answers(RunHeader))
async def restore_run(request: Request, run_id: Id, actor: Writer, runs: TheRuns) -> Response:
    """Show a deleted run again."""
    run = await runs.restore(actor, run_id)
    await note(request, "run.restore", run_id, actor)
    return run_answer(request, run)


@router.get("/runs/{run_id}/trajectories", openapi_extra=answers(TrajectoryPage))
async def run_trajectories(
    run_id: Id,
    _: Reader,
    runs: TheRuns,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
) -> Response:
    """The run's trajectories in the order of its log, each with what its monitors said."""
    page = await runs.run_trajectories(run_id, cursor, limit)
    return json_answer({"items": page.items, "next": page.next, "total": page.total})


@router.get("/runs/{run_id}/eval", response_class=Response, openapi_extra=answers_bytes("application/zip"))
async def get_archive(request: Request, run_id: Id, actor: HeavyReader, runs: TheRuns) -> Response:
    """The run's log, whole or by range."""
    return await archive_answer(request, run_id, actor, runs)


@router.get("/runs/{run_id}/files", openapi_extra=answers(Files))
async def files(run_id: Id, _: Reader, runs: TheRuns) -> Response:
    """The members of the run's log."""
    return json_answer({"items": await runs.files(run_id)})


@router.get("/runs/{run_id}/curve", openapi_extra=answers(Document))
async def curve(
    request: Request,
    run_id: Id,
    _: HeavyReader,
    runs: TheRuns,
    monitor: Annotated[
        str | None, Query(max_length=500, description="Whose scores decide; else each.")
    ] = None,
    budgets: Annotated[
        str, Query(max_length=200, description="Shares from 0 to 1, with commas between.")
    ] = "0.01,0.05,0.1",
    bootstrap: Annotated[int, Query(ge=0, le=2000, description="Draws for the intervals.")] = 500,
) -> Response:
    """Safety and usefulness of the run, as `ct metrics --format json` says them.

    Without a monitor there is an evaluation for each. Thresholds are fitted on honest samples only; what
    errored or was not scored is counted beside each number.
    """
    from control_tower.viewer.measuring import measuring_of

    shares = _shares(budgets)
    archive = await runs.archive_of(run_id)
    return json_answer(await measuring_of(request).curve(archive, monitor, shares, bootstrap))


def _shares(text: str) -> tuple[float, ...]:
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise BadRequest(f"budgets: {text!r} is not numbers with commas between them") from None
    if not all(0 <= share <= 1 for share in found) or len(found) > 20:
        raise BadRequest("budgets: must be at most 20 shares from 0 to 1")
    return tuple(found)


def _wanted(fields: str | None) -> set[str]:
    wanted = {field.strip() for field in (fields or "").split(",") if field.strip()}
    for field in sorted(wanted - RunRow.model_fields.keys()):
        raise BadRequest(f"fields: there is no field {field!r}{did_you_mean(field, RunRow.model_fields)}")
    return wanted
