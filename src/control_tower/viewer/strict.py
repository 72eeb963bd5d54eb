"""JSON as this API takes and gives it: no NaN, not nested without end; what is not finite is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute

from control_tower.agent_runs.errors import BadRequest
from control_tower.logs.json_text import BadJson, dumps, strict_loads

DEEPEST = 64
"""How deeply arrays and objects of a request may be nested."""

_SMALL = 64 * 1024

NONFINITE = "X-CT-Nonfinite"
"""Header: how many numbers of the answer are null since they are not finite."""


def read_json(data: bytes) -> Any:
    """What the body of a request says.

    Raises:
        BadRequest: It is not JSON, has NaN or a number that is too large, or is nested too deeply.
    """
    try:
        value: Any = strict_loads(data)
    except BadJson as error:
        raise BadRequest(f"the body: {error}") from None
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return value
    raise BadRequest(f"the body is nested more than {DEEPEST} deep")


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer of strict JSON; numbers that are not finite are null, and counted in a header."""
    found = [0]
    try:
        body = dumps(value, allow_nan=False)
    except ValueError:
        body = dumps(_finite(value, found))
    more = {NONFINITE: str(found[0])} if found[0] else {}
    return Response(body, status, headers={**(headers or {}), **more}, media_type="application/json")


class StrictRoute(APIRoute):
    """Endpoints whose JSON bodies are read by `read_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        # Large ones would keep others waiting.
        return await self.app.state.pool.run(read_json, body) if len(body) > _SMALL else read_json(body)


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _finite(value: Any, found: list[int]) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item, found) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item, found) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        found[0] += 1
        return None
    return value
