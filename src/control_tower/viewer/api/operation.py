"""Whether the server is well, what it has done, and who asks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, Field

from control_tower.agent_runs.store.interface import Position, Sort
from control_tower.agent_runs.store.tables import AUDIT_EVENTS
from control_tower.agent_runs.store.where import All, Equals, Where
from control_tower.errors import OperationError
from control_tower.storage.blobs import blob_key
from control_tower.viewer.actors import Admin, Someone, admin_of
from control_tower.viewer.auth.actor import site_of
from control_tower.viewer.edge import is_loopback
from control_tower.viewer.monitoring import Monitoring
from control_tower.viewer.openapi import answers
from control_tower.viewer.strict import json_answer

router = APIRouter(tags=["Operation"])


class Health(BaseModel):
    """That the process answers."""

    status: str = Field(description="`ok`")


class Whoami(BaseModel):
    """The user of a token or session."""

    user_id: str
    name: str
    role: str = Field(description="`reader`, `member`, `maintainer` or `admin`.")
    scopes: list[str] = Field(description="What the token may be used for.")
    token_id: str | None = Field(description="Public id of the token; null without one.")
    expires: str | None = Field(description="When the token ends, RFC 3339; null is never, or no token.")


class AuditEvent(BaseModel):
    """Something that was done or refused."""

    id: str
    at: str
    action: str = Field(description="As `token.create` or `run.delete`.")
    target: str
    actor: str | None = Field(description="Id of the user; null when nobody was known.")
    token_id: str | None
    allowed: bool
    network: str | None
    request_id: str | None
    details: dict[str, Any]


class AuditPage(BaseModel):
    """Events, the latest first."""

    items: list[AuditEvent]
    next: str | None = Field(description="`cursor` of the next page; null at the end.")


@router.get("/healthz", openapi_extra=answers(Health))
async def healthz() -> Response:
    """Say that the process runs. Needs no token."""
    return json_answer({"status": "ok"})


@router.get("/readyz", openapi_extra=answers(Health))
async def readyz(request: Request) -> Response:
    """Say whether the store and the logs can be used; 503 while they cannot. Needs no token."""
    site = site_of(request)
    await site.store.count(AUDIT_EVENTS, Equals("at", ""))
    await site.blobs.head(blob_key("0" * 64))
    if await site.blobs.free() == 0:
        raise OperationError("the disk of the logs is full")
    return json_answer({"status": "ok"})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counts for Prometheus, in its text format. From another machine it needs an admin's token."""
    client = request.client
    forwarded = "forwarded" in request.headers or "x-forwarded-for" in request.headers
    if forwarded or not (client and is_loopback(client.host)):
        await admin_of(request)
    text = cast(Monitoring, request.app.state.monitoring).text()
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@router.get("/api/v1/whoami", openapi_extra=answers(Whoami))
async def whoami(actor: Someone) -> Response:
    """Say who the token or the session is of, and what it may do."""
    return json_answer({**asdict(actor), "scopes": sorted(actor.scopes)})


@router.get("/api/v1/audit", openapi_extra=answers(AuditPage))
async def audit(
    request: Request,
    _: Admin,
    actor: Annotated[str | None, Query(max_length=200, description="Of this user.")] = None,
    target: Annotated[str | None, Query(max_length=200, description="On this run, user or token.")] = None,
    cursor: Annotated[str | None, Query(max_length=200, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List what was done, the latest first. For admins."""
    asked: list[Where] = [
        Equals(column, value) for column, value in {"actor": actor, "target": target}.items() if value
    ]
    found = await site_of(request).store.find(
        AUDIT_EVENTS,
        All(tuple(asked)),
        sort=Sort(descending=True),
        after=Position(None, cursor) if cursor else None,
        limit=limit + 1,
    )
    items = [{"id": row.id, **row.listed} for row in found[:limit]]
    return json_answer({"items": items, "next": items[-1]["id"] if len(found) > limit else None})
