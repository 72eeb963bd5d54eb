"""The web application over one site: the HTTP API and its pages."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from control_tower import __version__
from control_tower.viewer import errors
from control_tower.viewer.edge import Edge
from control_tower.viewer.limits import Limits
from control_tower.viewer.monitoring import Monitoring
from control_tower.viewer.pool import Pool

if TYPE_CHECKING:
    from control_tower.agent_runs.site import Site

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of a viewer without login; a page that calls it by another was made to lead a browser here."""

PARTS: tuple[tuple[str, str], ...] = (
    (r"/api/v1/(runs|facets)\b.*", "api.runs:router"),
    (r"/api/v1/trajectories\b.*", "api.trajectories:router"),
    (r"/api/v1/uploads\b.*", "api.uploads:router"),
    (r"/api/v1/(whoami|audit)|/(healthz|readyz|metrics)", "api.operation:router"),
    (r"/api/(v1/)?(auth|tokens|users)\b.*", "auth.api:router"),
    (r"/(api|blobs)/.*", "api.compat:router"),
    (r"/((runs|trajectories)/.*)?", "api.landing:router"),
    (r"/.*", "auth.pages:pages"),
)
"""Where the endpoints of a path are; the first that fits counts. A part is imported when it is asked for."""


def create_app(site: Site) -> FastAPI:
    """The application.

    Args:
        site: Its store, logs and settings, open; whoever opened it closes it.
    """
    app = FastAPI(
        title="Control Tower",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=lambda route: (
            ("older_" if "Older clients" in route.tags else "") + route.name
        ),
    )
    app.state.site = site
    app.state.limits = Limits()
    app.state.monitoring = Monitoring()
    app.state.pool = Pool()
    errors.install(app)
    app.add_api_route("/api/openapi.json", _description, include_in_schema=False)
    app.add_middleware(_Parts, whole=app)
    app.add_middleware(
        Edge,
        monitoring=app.state.monitoring,
        hosts=LOOPBACK if site.settings.mode == "local" else None,
        url=site.settings.public_url,
    )
    return app


def load(app: FastAPI) -> FastAPI:
    """The application with all its parts."""
    for _, part in PARTS:
        _include(app, part)
    return app


class _Parts:
    """Brings in the part that a request is for."""

    def __init__(self, app: ASGIApp, whole: FastAPI) -> None:
        self._app = app
        self._whole = whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            part = next((part for path, part in PARTS if re.fullmatch(path, scope["path"])), None)
            if part:
                _include(self._whole, part)
        await self._app(scope, receive, send)


def _include(app: FastAPI, part: str) -> None:
    included: set[str] = app.state.__dict__.setdefault("included", set())
    if part not in included:
        included.add(part)
        module, _, name = part.partition(":")
        router = getattr(import_module(f"control_tower.viewer.{module}"), name)
        app.include_router(router, include_in_schema=name == "router")


async def _description(request: Request) -> Response:
    from control_tower.viewer.openapi import describe
    from control_tower.viewer.strict import json_answer

    state = request.app.state
    if not hasattr(state, "description"):
        state.description = describe(load(request.app))
    return json_answer(state.description)
