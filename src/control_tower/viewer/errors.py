"""Every refusal as a problem (RFC 9457) with a stable code, and `error`, which older clients read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from control_tower.agent_runs import errors
from control_tower.config import redact
from control_tower.errors import ExpectedError, OperationError, StateError, ValidationError
from control_tower.logs.json_text import dumps
from control_tower.storage.blobs import DigestMismatch, OutOfSpace

RETRY_SECONDS = 5
"""After how long a client may try again what failed since something of ours is away."""

PROBLEM_TYPE = "application/problem+json"

STATUSES: tuple[tuple[type[ExpectedError], int, str], ...] = (
    (errors.BadRequest, 400, "bad_request"),
    (errors.NotAuthenticated, 401, "not_authenticated"),
    (errors.Forbidden, 403, "forbidden"),
    (errors.NotFound, 404, "not_found"),
    (errors.Conflict, 409, "conflict"),
    (errors.Stale, 412, "stale"),
    (errors.TooMany, 429, "too_many_requests"),
    (DigestMismatch, 422, "digest_mismatch"),
    (OutOfSpace, 507, "out_of_space"),
    (OperationError, 503, "unavailable"),
    (ValidationError, 400, "bad_request"),
    (StateError, 409, "conflict"),
)
"""Status and code of each kind of error; the first that fits counts."""


log = logging.getLogger(__name__)


class Problem(BaseModel):
    """Why a request was refused."""

    type: str = Field("about:blank", description="Always `about:blank`: `code` says which problem it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The status of the answer.")
    code: str = Field(description="What programs tell problems apart by; it does not change.")
    detail: str = Field(description="For people: what is wrong with which input, and the fix.")
    error: str = Field(description="The same as `detail`.")
    request_id: str = Field(description="As in the header `X-Request-Id`, and in the server's log.")


class Refusal(Exception):
    """A refusal that is an affair of HTTP only."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})


def refusal_of(error: ExpectedError) -> Refusal:
    """The refusal that an expected error is answered with."""
    status, code = next((s, c) for kind, s, c in STATUSES if isinstance(error, kind))
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="control-tower"'
    if isinstance(error, errors.TooMany):
        headers["Retry-After"] = str(max(math.ceil(error.retry_after), 1))
    if status == 503:
        headers["Retry-After"] = str(RETRY_SECONDS)
    return Refusal(status, code, redact(" ".join(str(error).split())), headers)


def answer(refusal: Refusal, request_id: str) -> Response:
    """A refusal as it is sent."""
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(refusal.status).phrase,
        status=refusal.status,
        code=refusal.code,
        detail=refusal.detail,
        error=refusal.detail,
        request_id=request_id,
    )
    return Response(
        dumps(problem.model_dump()), refusal.status, headers=refusal.headers, media_type=PROBLEM_TYPE
    )


def install(app: FastAPI) -> None:
    """Makes an application answer every error of its endpoints this way."""

    def handle(request: Request, error: Exception) -> Response:
        refusal = _refusal(error)
        if refusal.status == 503:
            log.warning("request %s: %s", request.state.request_id, refusal.detail)
            if request.app.state.site.settings.mode != "local":
                refusal.detail = "the viewer cannot reach its store or its logs; try again"
        return answer(refusal, request.state.request_id)

    for kind in (Refusal, ExpectedError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ExpectedError):
        return refusal_of(error)
    if isinstance(error, RequestValidationError):
        return Refusal(400, "bad_request", "; ".join(_said(each) for each in error.errors()[:5]))
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ExpectedError | Refusal):
        return _refusal(error.__cause__)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return Refusal(error.status_code, code, str(error.detail), error.headers)


def _said(found: Mapping[str, Any]) -> str:
    """One finding about an input, without the input itself, which may be a secret."""
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg']}"
