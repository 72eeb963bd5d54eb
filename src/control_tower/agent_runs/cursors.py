"""Where a page of a list ended, as a signed text that is good for the same list only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import cast

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Position, Sort
from control_tower.agent_runs.store.where import Where

_PURPOSE = "cursor"


def cursor_of(site: Site, where: Where, sort: Sort, position: Position) -> str:
    """A cursor behind a row."""
    payload = json.dumps([_list_of(where, sort), position.value, position.id]).encode()
    text = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return f"{text}.{site.sign(_PURPOSE, text)}"


def position_of(site: Site, where: Where, sort: Sort, cursor: str) -> Position:
    """Where a cursor stands.

    Raises:
        BadRequest: It is none of ours, or of another list.
    """
    text, _, signature = cursor.partition(".")
    if not site.signed(_PURPOSE, text, signature):
        raise BadRequest("cursor: is none of this viewer; take `next` of the page before")
    try:
        payload = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise BadRequest("cursor: cannot be read") from None
    of_list, value, id = cast("tuple[str, str | float | None, str]", json.loads(payload))
    if of_list != _list_of(where, sort):
        raise BadRequest("cursor: is of another list; filters and order must be those of the page before")
    return Position(value, id)


def _list_of(where: Where, sort: Sort) -> str:
    return hashlib.sha256(repr((where, sort)).encode(errors="surrogatepass")).hexdigest()[:16]
