"""Kept runs and their trajectories as readers and editors see them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pydantic

from control_tower.agent_runs.actor import Actor
from control_tower.agent_runs.audit import rfc3339
from control_tower.agent_runs.cursors import cursor_of, position_of
from control_tower.agent_runs.errors import BadRequest, Forbidden, NotFound, Stale
from control_tower.agent_runs.filters import RUNS_LANGUAGE, TRAJECTORIES_LANGUAGE, condition, sorting
from control_tower.agent_runs.queries import (
    Archive,
    Page,
    Run,
    RunQuery,
    StoredSample,
    TrajectoryPage,
    TrajectoryQuery,
)
from control_tower.agent_runs.registering import (
    find_run,
    is_whole,
    normal_tags,
    said,
    show,
    whole_document,
)
from control_tower.agent_runs.rows import editable, edited_columns
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.interface import Row, Sort
from control_tower.agent_runs.store.rows import position
from control_tower.agent_runs.store.tables import RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import EVERY, All, Compare, Equals, Not, OneOf, Scalar, Where
from control_tower.errors import StateError, did_you_mean
from control_tower.logs.json_text import JsonObject
from control_tower.logs.zip_records import METHOD_NAMES
from control_tower.records.runs import RunPatch, TrajectoryMetadata, TrajectorySummary
from control_tower.storage.blobs import Blob, blob_key

if TYPE_CHECKING:
    from control_tower.logs.bundles import SampleRange

LARGEST_PAGE = 500

MOST_VALUES = 200
"""Of one facet."""

FACETS = {
    "policy": "policies",
    "protocol": "protocol",
    "task_set": "task_set",
    "env": "environments",
    "main": "main_tasks",
    "side": "side_tasks",
    "tag": "tags",
    "model": "models",
    "monitor": "monitors",
    "uploader": "creator",
    "producer": "producer",
    "status": "status",
    "eval_version": "eval_version",
}
"""Fields of the filter language whose values are counted, and their columns; not names of metrics, of which
each run has so many that counting them takes seconds."""


class Runs:
    """The runs of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = site.store

    async def list(self, query: RunQuery, actor: Actor) -> Page:
        """Runs that match.

        Args:
            query: Which.
            actor: Who `uploader:me` is.

        Raises:
            BadRequest: The query cannot be meant; the message names what of it.
        """
        where, sort = self._asked(query, actor), sorting(query.sort)
        after = position_of(self._site, where, sort, query.cursor) if query.cursor else None
        rows = await self._store.find(
            RUNS, where, sort=sort, after=after, limit=query.limit + 1, documents=query.documents
        )
        shown = rows[: query.limit]
        more = len(rows) > query.limit
        return Page(
            [_run(row).document if query.documents else row.listed for row in shown],
            cursor_of(self._site, where, sort, position(shown[-1], sort)) if more and shown else None,
            await self._counted(where) if query.count else None,
        )

    async def get(self, run_id: str) -> Run:
        """One run.

        Raises:
            NotFound: There is none.
        """
        return _run(await self._row(run_id))

    async def patch(self, actor: Actor, run_id: str, changes: JsonObject, if_match: str | None = None) -> Run:
        """Changes `name`, `tags`, `policy`, `dataset` or `description`.

        Args:
            actor: Who does it.
            run_id: Of the run.
            changes: New values; null clears `policy`, `dataset` and `description`.
            if_match: The value of the header; None changes whatever is there.

        Raises:
            NotFound: There is no such run.
            Forbidden: It is somebody else's.
            BadRequest: Another field, or a value it cannot have.
            Stale: It was changed since the ETag was given.
        """
        try:
            given = RunPatch.model_validate(changes).model_dump(exclude_unset=True)
        except pydantic.ValidationError as error:
            raise BadRequest(said(error)) from None
        if "tags" in given:
            given["tags"] = normal_tags(given["tags"])

        def changed(row: Row) -> Row:
            if if_match is not None and not _matches(row, if_match):
                raise Stale(f"run {run_id}: was changed by someone else; read it again")
            header = {**row.document["header"], **given}
            return replace(
                row,
                columns={**row.columns, **edited_columns(header)},
                listed={**row.listed, **editable(header)},
                document={**row.document, "header": header},
            )

        return _run(await self._change(actor, run_id, changed))

    async def delete(self, actor: Actor, run_id: str) -> None:
        """Hides a run; it can be restored for 30 days.

        Raises:
            NotFound: There is no such run.
            Forbidden: It is somebody else's.
        """
        now = rfc3339(self._site.now())
        await self._change(actor, run_id, lambda row: replace(row, columns={**row.columns, "deleted": now}))

    async def restore(self, actor: Actor, run_id: str) -> Run:
        """Shows a deleted run again; one that is not deleted stays as it is.

        Raises:
            NotFound: There is no such run, deleted or not.
            Forbidden: It is somebody else's.
        """
        row = await find_run(self._site, run_id)
        if row is None or not is_whole(row):
            raise _no_run(run_id)
        _require_editor(actor, row)
        return _run(await show(self._site, row))

    async def facets(
        self, query: RunQuery, actor: Actor, limit: int = 50, fields: Sequence[str] = ()
    ) -> JsonObject:
        """The values by which runs can be filtered: `{field: [{"value", "count"}, ...]}`.

        Args:
            query: Of which runs.
            actor: Who `uploader:me` is.
            limit: How many values of each field, at most `MOST_VALUES`.
            fields: Of `FACETS`; all when there are none.

        Raises:
            BadRequest: There is no such field, or the query cannot be meant.
        """
        for field in fields:
            if field not in FACETS:
                raise BadRequest(f"field: there is no {field!r} to count{did_you_mean(field, FACETS)}")
        where, wanted = self._asked(query, actor), dict.fromkeys(fields or FACETS)
        found = await asyncio.gather(*(self._values(FACETS[field], where) for field in wanted))
        return {
            field: [{"value": value, "count": count} for value, count in values[:limit]]
            for field, values in zip(wanted, found, strict=True)
        }

    async def trajectories(self, query: TrajectoryQuery, actor: Actor) -> TrajectoryPage:
        """Trajectories that match.

        Raises:
            BadRequest: The query cannot be meant.
        """
        page = 1 if query.page is None else query.page
        size = LARGEST_PAGE if query.page_size is None else min(query.page_size, LARGEST_PAGE)
        if page < 1 or size < 1:
            raise BadRequest("page, page_size: must be at least 1")
        asked = condition(TRAJECTORIES_LANGUAGE, query.q, query.parameters, me=actor.user_id)
        hidden = await self._hidden()
        where = All((asked, Not(hidden))) if hidden.values else asked
        skip = (page - 1) * size
        left = size if query.limit is None else max(0, min(size, query.limit - skip))
        order = Sort("created", descending=True)
        rows: list[Row] = []
        if left:
            rows = await self._store.find(
                TRAJECTORIES, where, sort=order, skip=skip, limit=left, documents=query.documents
            )

        async def counted(hidden: OneOf) -> int:
            if asked == EVERY:
                return int(await self._store.total(RUNS, "trajectories", _SEEN))
            every = await self._store.count(TRAJECTORIES, asked)
            # Few are hidden: they are counted sooner than all others are looked up among them.
            unseen = await self._store.count(TRAJECTORIES, All((hidden, asked))) if hidden.values else 0
            return every - unseen

        async def counted_anew() -> int:
            return await counted(await self._hidden())

        if query.exact:
            total = await counted(hidden)
        else:
            total = await self._site.answers.of(("trajectories", asked), counted_anew)
        return TrajectoryPage(await self._shown(query, rows), total, page, size)

    async def run_trajectories(self, run_id: str, cursor: str | None = None, limit: int = 200) -> Page:
        """Rows of a run's trajectories in the order of its log.

        Each has `suspicion`: by monitor a byte an action, 255 where there is no score, in base64.

        Raises:
            NotFound: There is no such run.
        """
        run = await self._row(run_id)
        where, sort = Equals("run_id", run_id), Sort("position")
        after = position_of(self._site, where, sort, cursor) if cursor else None
        rows = await self._store.find(TRAJECTORIES, where, sort=sort, after=after, limit=limit + 1)
        shown, more = rows[:limit], len(rows) > limit
        return Page(
            [row.listed for row in shown],
            cursor_of(self._site, where, sort, position(shown[-1], sort)) if more and shown else None,
            int(run.listed["trajectory_count"]),
        )

    async def trajectory(self, trajectory_id: str) -> JsonObject:
        """The whole document of a trajectory.

        Raises:
            NotFound: There is none.
        """
        row, run = await self._trajectory(trajectory_id)
        return whole_document(row.document, run)

    async def archive_of(self, run_id: str) -> Archive:
        """The log of a run.

        Raises:
            NotFound: There is no such run.
            StateError: Its log is gone.
        """
        row = await self._row(run_id)
        return Archive(await self._blob(row), str(row.columns["sha256"]), f"{run_id}.eval")

    async def sample_of(self, trajectory_id: str) -> StoredSample:
        """Where the sample of a trajectory stands.

        Raises:
            NotFound: There is no such trajectory.
            StateError: Its log is gone.
        """
        row, run = await self._trajectory(trajectory_id)
        blob = await self._blob(run)
        where = cast("SampleRange", {**row.document["eval_sample_range"], "eTag": blob.e_tag})
        given = {key: row.document.get(key) for key in TrajectoryMetadata.model_fields}
        metadata = {key: value for key, value in given.items() if value is not None}
        return StoredSample(blob, str(run.columns["sha256"]), where, metadata)

    async def files(self, run_id: str) -> list[JsonObject]:
        """The members of a run's log: `name`, `size`, `compressed_size`, `method`.

        Raises:
            NotFound: There is no such run.
            StateError: Its log is gone.
        """
        from control_tower.agent_runs.ingest import directory

        blob = await self._blob(await self._row(run_id))
        members = await asyncio.to_thread(directory, self._site.blobs.source(blob))
        return [
            {
                "name": member.name,
                "size": member.size,
                "compressed_size": member.compressed_size,
                "method": METHOD_NAMES[member.method],
            }
            for member in members
        ]

    def _asked(self, query: RunQuery, actor: Actor) -> Where:
        return All((_SEEN, condition(RUNS_LANGUAGE, query.q, query.parameters, me=actor.user_id)))

    async def _hidden(self) -> OneOf:
        """That a trajectory is of a run that nobody sees."""
        found = await self._store.facet(RUNS, "id", _HIDDEN, limit=sys.maxsize)
        return OneOf("run_id", tuple(value for value, _ in found))

    async def _counted(self, where: Where) -> int:
        return await self._site.answers.of(("runs", where), lambda: self._store.count(RUNS, where))

    async def _values(self, column: str, where: Where) -> Sequence[tuple[Scalar, int]]:
        def work() -> Awaitable[Sequence[tuple[Scalar, int]]]:
            return self._store.facet(RUNS, column, where, limit=MOST_VALUES)

        return await self._site.answers.of(("values", column, where), work)

    async def _row(self, run_id: str) -> Row:
        row = await find_run(self._site, run_id)
        if row is None or row.columns.get("deleted"):
            raise _no_run(run_id)
        return row

    async def _change(self, actor: Actor, run_id: str, change: Callable[[Row], Row]) -> Row:
        while True:
            row = await self._row(run_id)
            _require_editor(actor, row)
            changed = change(row)
            if await self._store.replace(RUNS, changed):
                return replace(changed, rev=row.rev + 1)

    async def _trajectory(self, trajectory_id: str) -> tuple[Row, Row]:
        """A trajectory and its run."""
        row = (await self._store.get(TRAJECTORIES, [trajectory_id])).get(trajectory_id)
        run = await find_run(self._site, str(row.columns["run_id"])) if row else None
        if row is None or run is None or run.columns.get("deleted"):
            raise NotFound(f"trajectory {trajectory_id}: there is none")
        return row, run

    async def _blob(self, run: Row) -> Blob:
        blob = await self._site.blobs.head(blob_key(str(run.columns["sha256"])))
        if blob is None:
            raise StateError(f"run {run.id}: its log is gone; `ct viewer verify` lists what is")
        return blob

    async def _shown(self, query: TrajectoryQuery, rows: Sequence[Row]) -> Sequence[Any]:
        if query.ids_only:
            return [row.id for row in rows]
        if not query.documents:
            return [{key: row.listed.get(key) for key in TrajectorySummary.model_fields} for row in rows]
        runs = await self._store.get(RUNS, list({str(row.columns["run_id"]) for row in rows}))
        # Those of a run that was removed meanwhile are there no more.
        kept = [(row, run) for row in rows if (run := runs.get(str(row.columns["run_id"])))]
        return [whole_document(row.document, run) for row, run in kept]


def _run(row: Row) -> Run:
    counted = {name: row.listed[name] for name in ("counts", "cost_incomplete")}
    return Run({**row.document["header"], **counted}, f'W/"{row.rev}"')


def _matches(row: Row, if_match: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_match.split(",")}
    return "*" in tags or f'"{row.rev}"' in tags


def _require_editor(actor: Actor, row: Row) -> None:
    if not actor.may_edit(str(row.columns["creator"])):
        raise Forbidden(f"run {row.id}: is of {row.columns['creator']}; only they or maintainers change it")


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"run {run_id}: there is none")


_SEEN = Equals("deleted", None)
_HIDDEN = Compare("deleted", ">=", "")
