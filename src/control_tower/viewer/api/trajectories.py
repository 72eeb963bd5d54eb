"""Trajectories: found, and their samples read straight from the log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from control_tower.agent_runs.filters import TRAJECTORY_PARAMETERS
from control_tower.agent_runs.queries import TrajectoryQuery
from control_tower.records.runs import TrajectorySummary
from control_tower.viewer.actors import HeavyReader, Reader
from control_tower.viewer.api.shared import Id, TheRuns, TheSamples, described, plain_parameters
from control_tower.viewer.content import download
from control_tower.viewer.openapi import Document, answers, answers_bytes
from control_tower.viewer.strict import json_answer

router = APIRouter(prefix="/api/v1", tags=["Trajectories"])

_OWN = frozenset({"q", "page", "page_size"})


class Trajectories(BaseModel):
    """A page of trajectories, the latest first."""

    model_config = ConfigDict(defer_build=True)

    items: list[TrajectorySummary]
    total_count: int = Field(description="Of all that match; as old as facets may be.")
    page: int
    page_size: int


@router.get("/trajectories", openapi_extra=answers(Trajectories, **described(TRAJECTORY_PARAMETERS)))
async def list_trajectories(
    request: Request,
    actor: Reader,
    runs: TheRuns,
    *,
    q: Annotated[str, Query(max_length=2000, description="In the filter language.")] = "",
    page: Annotated[int, Query(ge=1, le=2**31)] = 1,
    page_size: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """List trajectories, the latest first."""
    query = TrajectoryQuery(plain_parameters(request, _OWN), q, page, page_size, exact=False)
    found = await runs.trajectories(query, actor)
    return json_answer(vars(found))


@router.get("/trajectories/{trajectory_id}", openapi_extra=answers(Document))
async def get_trajectory(trajectory_id: Id, _: Reader, runs: TheRuns) -> Response:
    """All that is known of a trajectory without its sample."""
    return json_answer(await runs.trajectory(trajectory_id))


@router.get(
    "/trajectories/{trajectory_id}/sample",
    response_class=Response,
    openapi_extra=answers_bytes("application/json"),
)
async def get_sample(
    request: Request, trajectory_id: Id, _: HeavyReader, runs: TheRuns, samples: TheSamples
) -> Response:
    """The sample as Inspect wrote it, whole or by range; compressed as in the log if the client takes it."""
    found = await runs.sample_of(trajectory_id)
    return await download(request, await samples.raw(found, request.headers.get("accept-encoding", "")))


@router.get(
    "/trajectories/{trajectory_id}/eval",
    response_class=Response,
    openapi_extra=answers_bytes("application/zip"),
)
async def get_log(
    request: Request, trajectory_id: Id, _: HeavyReader, runs: TheRuns, samples: TheSamples
) -> Response:
    """The sample as a log of its own, which Inspect opens."""
    found = await runs.sample_of(trajectory_id)
    return await download(request, await samples.archive(found, f"{trajectory_id}.eval"))
