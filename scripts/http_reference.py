"""The page on the HTTP API and its description in OpenAPI, from the application."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from control_tower.agent_runs.site import Site, SiteSettings
from control_tower.viewer.app import create_app, load
from control_tower.viewer.errors import STATUSES
from control_tower.viewer.limits import ARCHIVES, HEAVY, PARTS, READS, STRANGERS, WRITES
from control_tower.viewer.openapi import describe

Json = dict[str, Any]

INTRODUCTION = """\
# HTTP API

This page is made from the code by `make docs`; `openapi.json` beside it says the same to programs, and
every viewer serves it at `/api/openapi.json`.

A request says who asks by `Authorization: Bearer <token>`; a token comes from `ct login`, or from the
page `/settings/tokens` of the viewer. `ct viewer serve` without users, on one's own machine, needs none.
Paths stand below the viewer's address. Everything under `/api/v1` is strict JSON: numbers that are not
finite are null, and the header `X-CT-Nonfinite` says how many. Times are RFC 3339 in UTC. Samples are
sent as Inspect wrote them, where `NaN` may stand for a number.

Lists go on where their `next` is passed as `cursor`, with the same filters and order. Documents of runs
have an `ETag`: `If-None-Match` saves reading one again, `If-Match` keeps an edit from undoing somebody
else's. Logs and samples can be read by `Range`; `HEAD` works wherever `GET` does.
"""

ERRORS = """\
## Errors

A refusal is `application/problem+json` with the members of [Problem](#problem). Programs go by `code`:
"""

LIMITS = """\
A request that is a little early is held back for up to two seconds, then refused with 429 and `Retry-After`;
so is 503, while the store or the logs are away. Without users no pace is kept.
"""

MORE_CODES = (
    (405, "method_not_allowed", "The path is there, but not for this method."),
    (408, "request_timeout", "The body stopped coming."),
    (413, "content_too_large", "The body is too large: 1 MiB, or 8 MiB of registered trajectories."),
    (416, "range_not_satisfiable", "The range is beyond the end."),
    (421, "wrong_host", "The viewer is not called by this name."),
    (500, "internal_error", "A defect of the viewer; its log has the request id."),
)

TEXTS = {
    "not_authenticated": "There is no token, or it is not valid any more.",
    "forbidden": "The user or the token may not do this.",
    "not_found": "There is no such thing, or not for this user.",
    "bad_request": "Something about the request is wrong; `detail` names it.",
    "conflict": "Something else is there, or the stored log cannot be read as it should.",
    "stale": "Somebody else has changed it since it was read.",
    "too_many_requests": "Too often; `Retry-After` says when to ask again.",
    "digest_mismatch": "Other bytes arrived than were announced; they were not kept.",
    "out_of_space": "There is no room for the log.",
    "unavailable": "The store or the logs cannot be reached; try again.",
}


def description() -> Json:
    """The API in OpenAPI."""
    site = Site(cast(Any, None), cast(Any, None), SiteSettings("local", Path(), ""), b"", cast(Any, None))
    return describe(load(create_app(site)))


def openapi_text(described: Json) -> str:
    """The file `openapi.json`."""
    return json.dumps(described, indent=1, ensure_ascii=False) + "\n"


def page_text(described: Json) -> str:
    """The page."""
    return "\n".join(_page(described)).rstrip() + "\n"


def _page(described: Json) -> Iterator[str]:
    yield INTRODUCTION
    yield ERRORS
    codes = {code: status for _, status, code in STATUSES}
    rows = [(status, code, TEXTS[code]) for code, status in codes.items()]
    yield from _table(
        ("Status", "`code`", "When"),
        [(str(status), f"`{code}`", text) for status, code, text in sorted([*rows, *MORE_CODES])],
    )
    yield "## Limits\n"
    paces = [
        (f"{p.name}, of a user", f"{p.rate:g} a second, {p.burst} at once") for p in (READS, HEAVY, WRITES)
    ]
    paces.append(
        (f"{STRANGERS.name}, of an address", f"{STRANGERS.rate:g} a second, {STRANGERS.burst} at once")
    )
    places = [(f"{name}, of a user", f"{most} at a time") for name, most, _ in (ARCHIVES, PARTS)]
    yield from _table(("What", "At most"), [*paces, *places])
    yield LIMITS
    by_tag: dict[str, list[tuple[str, str, Json]]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag in sorted(by_tag, key=lambda tag: (tag == "Older clients", tag)):
        yield f"## {tag}\n"
        for method, path, operation in by_tag[tag]:
            yield from _operation(method, path, operation)
    yield "## Objects\n"
    for name, schema in described["components"]["schemas"].items():
        yield from _object(name, schema)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield " ".join(operation.get("description", "").split()) + "\n"
    rows = [
        (
            f"`{each['name']}`",
            {"path": "in the path", "header": "header"}.get(each["in"], ""),
            _type(each.get("schema", {})),
            _default(each.get("schema", {})),
            each.get("description", each.get("schema", {}).get("description", "")),
        )
        for each in operation.get("parameters", [])
    ]
    yield from _table(("Parameter", "", "Type", "Default", "What it is"), rows)
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body: {_type(content['schema'])} as `{media}`.\n"
    for status, response in operation["responses"].items():
        if status != "default":
            shown = [
                f"{_type(c.get('schema', {}))} as `{media}`"
                for media, c in response.get("content", {}).items()
            ]
            yield f"Answer {status}: {', '.join(shown) or 'no body'}.\n"


def _object(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}\n"
    yield " ".join(schema.get("description", "").split()) + "\n"
    required = schema.get("required", [])
    rows = [
        (f"`{field}`", _type(part), "" if field in required else "may be absent", part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    ]
    yield from _table(("Member", "Type", "", "What it is"), rows)


def _type(schema: Json) -> str:
    """A schema in few words, with links to objects."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "binary":
        return "bytes"
    return str(kind)


def _default(schema: Json) -> str:
    value = schema.get("default")
    return "" if value in (None, "") else f"`{json.dumps(value)}`"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    lines = [" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    if lines:
        names = list(header)
        yield f"| {' | '.join(names)} |"
        yield "|" + "---|" * len(names)
        yield from (f"| {line} |" for line in lines)
        yield ""
