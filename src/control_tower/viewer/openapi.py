"""The description of the HTTP API: what endpoints take, as FastAPI finds it, and what they answer."""

from __future__ import annotations

from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from control_tower.viewer.errors import PROBLEM_TYPE, Problem

Json = dict[str, Any]

BINARY: Json = {"type": "string", "format": "binary"}

_REF = "#/components/schemas/{model}"
_models: dict[str, type[BaseModel]] = {}


class Document(BaseModel):
    """An object whose members are described in words."""

    model_config = ConfigDict(extra="allow", defer_build=True)


def answers(model: type[BaseModel] | None, *statuses: int, **more: Any) -> Json:
    """What an endpoint answers, for `openapi_extra`; its models cost nothing until the description is made.

    Args:
        model: Of the body, as JSON; None for none.
        statuses: With which; 200 when none is named.
        more: Other parts of the operation.
    """
    content: Json = {}
    if model is not None:
        _models[model.__name__] = model
        content = {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    found: Json = {}
    for status in statuses or (200,):
        found |= _response(status, content)
    return {"responses": found, **more}


def answers_bytes(media_type: str, *, ranges: bool = True) -> Json:
    """What an endpoint answers that sends bytes, whole or by range, for `openapi_extra`."""
    content = {media_type: {"schema": {"type": "object"} if media_type == "application/json" else BINARY}}
    if not ranges:
        return {"responses": _response(200, content)}
    ranged = {
        "name": "Range",
        "in": "header",
        "required": False,
        "description": "One range of bytes; the answer is then 206.",
        "schema": {"type": "string"},
    }
    responses = {**_response(200, content), **_response(206, content), **_response(304, {})}
    return {"responses": responses, "parameters": [ranged]}


def describe(app: FastAPI) -> Json:
    """The whole description; every refusal is a problem, which stands as `default`."""
    made: Json = get_openapi(
        title=app.title,
        version=app.version,
        description="Kept runs of AI-control evaluations: found, read, uploaded.",
        routes=app.routes,
        servers=[{"url": "/"}],
    )
    _, defined = models_json_schema(
        [(model, "serialization") for model in (Problem, *_models.values())], ref_template=_REF
    )
    schemas = cast(Json, made.setdefault("components", {}).setdefault("schemas", {}))
    schemas.update(cast(Json, defined["$defs"]))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = {PROBLEM_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}
    for operations in cast("dict[str, dict[str, Json]]", made["paths"]).values():
        for operation in operations.values():
            responses = cast(Json, operation["responses"])
            responses.pop("422", None)
            responses["default"] = {"description": "A problem.", "content": problem}
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}, {}]
    made["components"]["schemas"] = dict(sorted(schemas.items()))
    return made


def _response(status: int, content: Json) -> Json:
    description = {200: "Done.", 201: "Made.", 206: "The range.", 302: "Elsewhere.", 304: "Not changed."}
    answer: Json = {"description": description.get(status, "Done.")}
    return {str(status): {**answer, "content": content} if content else answer}
