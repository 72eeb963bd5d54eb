"""Logs sent in parts, so that an upload goes on after an interruption."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.uploads import UploadPlan
from control_tower.records.runs import Sha256
from control_tower.viewer.actors import Uploader, Writer, limits_of
from control_tower.viewer.api.shared import Id, TheUploads
from control_tower.viewer.limits import PARTS
from control_tower.viewer.openapi import BINARY, answers
from control_tower.viewer.strict import StrictRoute, json_answer

router = APIRouter(prefix="/api/v1/uploads", tags=["Uploads"], route_class=StrictRoute)

_BYTES = {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}}
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


class LogToSend(BaseModel):
    """A log that is to be sent."""

    sha256: Sha256
    size: int
    filename: str = Field(max_length=1000)


class Plan(BaseModel):
    """What is still to be sent."""

    upload_id: str
    exists: bool = Field(description="Nothing is: a run can be made of the log.")
    part_size: int = Field(description="Bytes of each part but the last.")
    parts_done: list[int] = Field(description="Numbers of the parts that have arrived, from 1.")


class SentLog(BaseModel):
    """A log that is there whole."""

    sha256: str
    size: int
    existing: bool = Field(description="Whether these bytes were there before.")


@router.post("", openapi_extra=answers(Plan))
async def plan(body: LogToSend, actor: Writer, uploads: TheUploads) -> Response:
    """Begin an upload, or find the one that was begun of the same log."""
    return _plan(await uploads.plan(actor, body.sha256, body.size, body.filename))


@router.get("/{upload_id}", openapi_extra=answers(Plan))
async def status(upload_id: Id, actor: Uploader, uploads: TheUploads) -> Response:
    """Say what has arrived."""
    return _plan(await uploads.status(actor, upload_id))


@router.put("/{upload_id}/parts/{number}", status_code=204, openapi_extra={"requestBody": _BYTES})
async def put_part(
    request: Request,
    upload_id: Id,
    number: Annotated[int, Path(ge=1, le=10_000)],
    actor: Uploader,
    uploads: TheUploads,
) -> Response:
    """Take a part. `Content-Digest: sha-256=:<base64>:` is checked; the same part again changes nothing."""
    length = request.headers.get("content-length", "")
    async with limits_of(request).place(PARTS, actor.user_id):
        await uploads.put_part(
            actor,
            upload_id,
            number,
            request.stream(),
            sha256=_sha256(request.headers.get("content-digest")),
            size=int(length) if length.isdecimal() else None,
        )
    request.app.state.monitoring.uploaded("part")
    return Response(status_code=204)


@router.post("/{upload_id}/complete", openapi_extra=answers(SentLog))
async def complete(request: Request, upload_id: Id, actor: Writer, uploads: TheUploads) -> Response:
    """Make the log of its parts, once all have arrived. May be asked again."""
    made = await uploads.complete(actor, upload_id)
    request.app.state.monitoring.uploaded("log")
    return json_answer({"sha256": made.sha256, "size": made.size, "existing": made.existing})


@router.delete("/{upload_id}", status_code=204)
async def abandon(upload_id: Id, actor: Writer, uploads: TheUploads) -> Response:
    """Forget an upload and its parts."""
    await uploads.abandon(actor, upload_id)
    return Response(status_code=204)


def _plan(found: UploadPlan) -> Response:
    return json_answer(
        {
            "upload_id": found.upload_id,
            "exists": found.exists,
            "part_size": found.part_size,
            "parts_done": found.parts_done,
        }
    )


def _sha256(header: str | None) -> str | None:
    """The hex digest that a Content-Digest header names; other algorithms are passed over."""
    if header is None:
        return None
    found = _DIGEST.search(header)
    try:
        return base64.b64decode(found[1], validate=True).hex() if found else None
    except binascii.Error:
        raise BadRequest("Content-Digest: its sha-256 is not base64") from None
