"""JSON as Inspect's logs hold it: NaN, infinities and lone surrogates survive a round trip."""

from __future__ import annotations

import json
from typing import Any, cast

JsonObject = dict[str, Any]


class BadJson(ValueError):
    """The bytes are not JSON; the text says where."""


def loads(data: bytes) -> Any:
    """What the text says.

    Raises:
        BadJson: It is not JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise BadJson(f"it is not JSON ({error})") from None
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 (at byte {error.start})") from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError as error:
        raise BadJson(f"it cannot be read ({error})") from None


def dumps(value: Any) -> bytes:
    """`value` as compact UTF-8; all ASCII where it holds a lone surrogate, which UTF-8 cannot carry."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def child(value: JsonObject | None, key: str) -> JsonObject:
    """The object under a key; empty where there is none, or something else."""
    found: Any = (value or {}).get(key)
    return cast(JsonObject, found) if isinstance(found, dict) else {}


def children(value: JsonObject | None, key: str) -> list[JsonObject]:
    """The objects in the list under a key; anything else is left out."""
    found: Any = (value or {}).get(key)
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast(JsonObject, item) for item in items if isinstance(item, dict)]
