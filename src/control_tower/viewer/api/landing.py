"""What stands at the addresses that `ct` prints: what it is, and where its downloads are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from control_tower.viewer.actors import Reader
from control_tower.viewer.api.shared import Id, TheRuns
from control_tower.viewer.auth.actor import base_url
from control_tower.viewer.strict import json_answer

router = APIRouter(include_in_schema=False)


@router.get("/")
async def viewer(request: Request, _: Reader) -> Response:
    """The viewer."""
    url = base_url(request)
    return json_answer(
        {"viewer": "Control Tower", "runs": f"{url}/api/v1/runs", "api": f"{url}/api/openapi.json"}
    )


@router.get("/runs/{run_id}")
async def run(request: Request, run_id: Id, _: Reader, runs: TheRuns) -> Response:
    """A run."""
    found = await runs.get(run_id)
    url = f"{base_url(request)}/api/v1/runs/{run_id}"
    links = {name: f"{url}/{name}" for name in ("trajectories", "eval", "files", "curve")}
    return json_answer({"run": found.document, "links": links})


@router.get("/trajectories/{trajectory_id}")
async def trajectory(request: Request, trajectory_id: Id, _: Reader, runs: TheRuns) -> Response:
    """A trajectory."""
    found = await runs.trajectory(trajectory_id)
    url = f"{base_url(request)}/api/v1/trajectories/{trajectory_id}"
    return json_answer({"trajectory": found, "links": {name: f"{url}/{name}" for name in ("sample", "eval")}})
