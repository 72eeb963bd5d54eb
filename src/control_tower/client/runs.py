"""What can be asked of a viewer about runs, and changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from control_tower.client.session import NotThere, Viewer
from control_tower.errors import StateError
from control_tower.logs.json_text import JsonObject

PAGE = 200
"""Rows that a viewer gives at once."""


@dataclass(frozen=True)
class RunQuery:
    """Which runs, and in which order."""

    where: str = ""
    """In the viewer's filter language."""
    tags: Sequence[str] = ()
    """All of which a run has."""
    sort: str = "-created"


async def list_runs(viewer: Viewer, query: RunQuery, limit: int | None = None) -> list[JsonObject]:
    """Rows of runs that match; at most `limit`, all when None.

    Raises:
        ExpectedError: The viewer cannot be reached, or refuses the query.
    """
    found: list[JsonObject] = []
    async for row in _rows(viewer, query, limit):
        found.append(row)
        if len(found) == limit:
            break
    return found


async def get_run(viewer: Viewer, run_id: str) -> JsonObject:
    """The header of a run.

    Raises:
        StateError: There is none.
    """
    return (await viewer.call("GET", f"/api/runs/{run_id}")).json()


async def edit_run(viewer: Viewer, run_id: str, changes: JsonObject) -> JsonObject:
    """Changes some of a run's `name`, `tags`, `policy`, `dataset`, `description`; the new header.

    Raises:
        StateError: There is no such run, or it is somebody else's.
    """
    return (await viewer.call("PATCH", f"/api/runs/{run_id}", json=changes)).json()


async def retag_run(viewer: Viewer, run_id: str, add: Sequence[str], remove: Sequence[str]) -> JsonObject:
    """Gives a run tags and takes others away, however many do so at once; the new header.

    Raises:
        StateError: There is no such run, or it is somebody else's.
    """
    for left in reversed(range(5)):
        answer = await viewer.call("GET", f"/api/runs/{run_id}")
        tags: list[str] = answer.json().get("tags") or []
        wanted = [tag for tag in dict.fromkeys([*tags, *add]) if tag not in remove]
        headers = {"If-Match": answer.headers["ETag"]} if "ETag" in answer.headers else {}
        changed = await viewer.call(
            "PATCH",
            f"/api/runs/{run_id}",
            json={"tags": wanted},
            headers=headers,
            accept=frozenset({412} if left else ()),
        )
        if changed.is_success:
            return changed.json()
    raise StateError(f"{run_id}: is being changed by others; try again")


async def delete_run(viewer: Viewer, run_id: str) -> None:
    """Hides a run; it can be restored for 30 days.

    Raises:
        StateError: There is no such run, or it is somebody else's.
    """
    await _new(viewer, "DELETE", f"/api/v1/runs/{run_id}", "removing runs")


async def restore_run(viewer: Viewer, run_id: str) -> JsonObject:
    """Shows a run again that was hidden; its header.

    Raises:
        StateError: There is no such run, or it is somebody else's.
    """
    return (await _new(viewer, "POST", f"/api/v1/runs/{run_id}/restore", "restoring runs")).json()


async def trajectory_ids(
    viewer: Viewer, filters: Mapping[str, str | None], limit: int | None = None
) -> list[str]:
    """Ids of the trajectories that match, at most `limit`.

    Args:
        viewer: Where.
        filters: By the names of `GET /api/trajectories`; None is no filter.
        limit: How many at most; None is all.

    Raises:
        StateError: The viewer gave fewer than there are.
    """
    found: dict[str, None] = {}
    page, size, total = None, None, 0
    while limit is None or len(found) < limit:
        params = {**filters, "ids_only": "true", "page": page, "page_size": size}
        told = (await viewer.call("GET", "/api/trajectories", params=params)).json()
        found.update(dict.fromkeys(told["items"]))
        size, total = told["page_size"], told["total_count"]
        page = (page or 1) + 1
        if len(found) >= total or not told["items"]:
            break
    if len(found) < min(total, total if limit is None else limit):
        raise StateError(f"{viewer.url}: gave {len(found)} of {total} trajectories; try again")
    return list(found)[:limit]


async def _rows(viewer: Viewer, query: RunQuery, limit: int | None) -> AsyncIterator[JsonObject]:
    params: dict[str, Any] = {"sort": query.sort, "q": query.where or None, "tag": list(query.tags) or None}
    params["limit"] = PAGE if limit is None else min(limit, PAGE)
    while True:
        try:
            page = (await viewer.call("GET", "/api/v1/runs", params=params)).json()
        except NotThere:
            from control_tower.client.older import is_older

            if not await is_older(viewer):
                raise
            for row in await _older_rows(viewer, query, limit):
                yield row
            return
        for row in page["items"]:
            yield row
        if not page["next"]:
            return
        params["cursor"] = page["next"]


async def _older_rows(viewer: Viewer, query: RunQuery, limit: int | None) -> list[JsonObject]:
    if query.where or query.sort != "-created":
        from control_tower.client.older import refuse_older

        await refuse_older(viewer, "--where and --sort")
    params = {"tags_include": ",".join(query.tags) or None, "limit": limit}
    return (await viewer.call("GET", "/api/runs", params=params)).json()["items"]


async def _new(viewer: Viewer, method: str, path: str, what: str) -> Any:
    """A call that viewers without `/api/v1` do not have."""
    try:
        return await viewer.call(method, path)
    except NotThere:
        from control_tower.client.older import refuse_older

        await refuse_older(viewer, what)
        raise
