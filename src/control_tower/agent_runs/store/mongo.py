"""Rows in a MongoDB database, one collection a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pymongo
from pymongo import AsyncMongoClient
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DuplicateKeyError,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from control_tower.agent_runs.store import mongo_query
from control_tower.agent_runs.store.interface import Position, Row, Sort, Table
from control_tower.agent_runs.store.migrations import (
    Progress,
    Rewrite,
    Schema,
    cannot_rewrite,
    migrate,
    refuse_newer,
)
from control_tower.agent_runs.store.mongo_query import Document
from control_tower.agent_runs.store.rows import checked, checked_sort, conjuncts, stored
from control_tower.agent_runs.store.tables import SCHEMA
from control_tower.agent_runs.store.where import EVERY, Compare, OneOf, Scalar, Where
from control_tower.errors import OperationError, StateError, ValidationError

_IDS_AT_ONCE = 500
_REWRITTEN_AT_ONCE = 200
_FEW = 1000
_RARE = 200
_VERSION = "schema_version"
_TAKEN = 11000
_DENIED = (13, 18, 8000)


class MongoStore:
    """A `Store` in MongoDB.

    Writes are acknowledged by a majority of the members that have them in their journals; reads see only
    such writes. A call fails after some seconds where no primary answers; one that goes over a whole table
    may take its time while the server is there.
    """

    def __init__(self, uri: str, schema: Schema = SCHEMA, *, wait: float = 8.0) -> None:
        """A store that is not connected yet.

        Args:
            uri: `mongodb://...` or `mongodb+srv://...`, with the name of the database in its path.
            schema: What it holds.
            wait: Seconds after which a call gives up, time for a change of primary included.

        Raises:
            ValidationError: The address cannot be meant, or names no database.
        """
        self._uri = uri
        self.schema = schema
        self.found_version: int | None = None
        self.written = Counter[str]()
        self._wait = wait
        try:
            # Names of `mongodb+srv` are looked up by the client only.
            parse_uri(uri.replace("mongodb+srv://", "mongodb://", 1))
        except (InvalidURI, ConfigurationError, ValueError):
            raise ValidationError(
                "MONGOURI: is no address of a MongoDB; write mongodb://HOST:PORT/DATABASE"
            ) from None
        hosts = uri.partition("://")[2].rpartition("@")[2]
        self.name = f"MongoDB at {re.split('[/?]', hosts)[0]}"
        """How messages call it; never with a password."""
        self._client: AsyncMongoClient[Document] | None = None

    async def open(self) -> None:
        if self._client is not None:
            return
        async with self._said():
            self._client = AsyncMongoClient(
                self._uri,
                serverSelectionTimeoutMS=int(self._wait * 1000),
                connectTimeoutMS=int(self._wait * 1000),
                appname="control-tower",
            )
        try:
            self._database()
            await self._prepare()
            await migrate(self, self.schema)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        self._client = None

    async def insert(self, table: Table, rows: Sequence[Row]) -> set[str]:
        made = [mongo_query.written(table, stored(table, row)) for row in rows]
        if not made:
            return set()
        async with self._writing(table), self._said():
            try:
                await self._of(table).insert_many(made, ordered=False)
            except BulkWriteError as error:
                if not _only_taken(error):
                    raise
                return {made[each["index"]]["_id"] for each in _failed(error)}
        return set()

    async def get(self, table: Table, ids: Sequence[str]) -> dict[str, Row]:
        found: list[Row] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            some = OneOf("id", tuple(ids[start : start + _IDS_AT_ONCE]))
            found += await self.find(table, some, documents=True)
        return {row.id: row for row in found}

    async def replace(self, table: Table, row: Row) -> bool:
        made = mongo_query.written(table, stored(table, row))
        made["rev"] += 1
        async with self._writing(table), self._said():
            try:
                done = await self._of(table).replace_one({"_id": row.id, "rev": row.rev}, made)
            except DuplicateKeyError:
                return False
        return done.matched_count == 1

    async def delete(self, table: Table, where: Where) -> int:
        met = mongo_query.condition(table, checked(table, where))
        async with self._writing(table), self._said(long=True):
            return (await self._of(table).delete_many(met)).deleted_count

    async def find(
        self,
        table: Table,
        where: Where = EVERY,
        *,
        sort: Sort | None = None,
        after: Position | None = None,
        skip: int = 0,
        limit: int | None = None,
        documents: bool = False,
    ) -> list[Row]:
        where, sort = checked(table, where), checked_sort(table, sort)

        async def rows(*, valued: bool, after: Position | None, skip: int, limit: int | None) -> list[Row]:
            if limit == 0:
                return []
            met, order = mongo_query.page(table, where, sort, after, valued=valued)
            shown = None if documents else {"document": 0}
            more: Document = {}
            chosen: Document = {}
            if valued and limit is not None:
                more, chosen = await self._few(table, where, sort)
            asked = {"$and": [more, met]} if more else met
            cursor = self._of(table).find(asked, shown, sort=order, skip=skip, limit=limit or 0, **chosen)
            return [mongo_query.read(table, found) async for found in cursor]

        async with self._said(long=limit is None):
            if after is not None and sort.column is not None and after.value is None:
                return await rows(valued=False, after=after, skip=skip, limit=limit)
            found = await rows(valued=True, after=after, skip=skip, limit=limit)
            if sort.column is None or (limit is not None and len(found) >= limit):
                return found
            left = 0
            if skip and not found:
                met, _ = mongo_query.page(table, where, sort, after, valued=True)
                left = max(0, skip - await self._count(table, met))
            rest = None if limit is None else limit - len(found)
            return found + await rows(valued=False, after=None, skip=left, limit=rest)

    async def count(self, table: Table, where: Where = EVERY) -> int:
        where = checked(table, where)
        met = mongo_query.condition(table, where)
        async with self._said(long=True):
            if not conjuncts(where):
                # Without a condition `count` would say what the server last noted of the collection.
                return await self._of(table).count_documents({})
            return await self._count(table, met)

    async def facet(
        self, table: Table, column: str, where: Where = EVERY, *, limit: int = 50
    ) -> list[tuple[Scalar, int]]:
        where = checked(table, where)
        steps = mongo_query.facet(table, column, where, limit)
        kind = table.column(column)
        async with self._said(long=True):
            hint = mongo_query.hint(table, column, where)
            found = [each async for each in await self._of(table).aggregate(steps, **hint)]
        return [(mongo_query.value_of(kind, each["_id"]), each["n"]) for each in found]

    async def total(self, table: Table, column: str, where: Where = EVERY) -> float:
        where = checked(table, where)
        met = mongo_query.condition(table, where)
        steps: list[Document] = [{"$match": met}, {"$group": {"_id": None, "sum": {"$sum": f"${column}"}}}]
        async with self._said(long=True):
            hint = mongo_query.hint(table, column, where)
            found = [each async for each in await self._of(table).aggregate(steps, **hint)]
        return float(found[0]["sum"]) if found else 0.0

    async def check(self) -> list[str]:
        found: list[str] = []
        async with self._said():
            for table in self.schema.tables:
                there = await self._of(table).index_information()
                missing = {options["name"] for _, options in mongo_query.indexes(table)} - set(there)
                found += [f"{self.name}: {table.name} has no index {name!r}" for name in sorted(missing)]
        return found

    async def progress(self) -> Progress:
        """See `migrations.Rewriting`."""
        async with self._said():
            found: Any = await self._collection(_VERSION).find_one({"_id": _VERSION})
        return Progress(found["version"], found["table"], found["after"])

    async def rewrite(self, now: Progress, table: Table, rewrite: Rewrite) -> str | None:
        """See `migrations.Rewriting`."""
        behind = Compare("id", ">", now.after)
        rows = await self.find(table, behind, limit=_REWRITTEN_AT_ONCE, documents=True)
        changed = [(row, new) for row in rows if (new := rewrite(row)) != row]
        if not await self._replace_all(table, [new for _, new in changed]):
            for row, new in changed:
                await self._rewrite_one(table, row, new, rewrite)
        return rows[-1].id if rows else None

    async def advance(self, now: Progress, then: Progress) -> None:
        """See `migrations.Rewriting`."""
        met = {"_id": _VERSION, "version": now.version, "table": now.table, "after": now.after}
        change = {"version": then.version, "table": then.table, "after": then.after}
        async with self._said():
            await self._collection(_VERSION).update_one(met, {"$set": change})

    async def _count(self, table: Table, met: Document, **options: Any) -> int:
        # Along one index this takes a third of the time of `count_documents`, which makes groups.
        asked = {"query": met, "readConcern": {"level": "majority"}, **options}
        return int((await self._database().command("count", table.name, **asked))["n"])

    async def _few(self, table: Table, where: Where, sort: Sort) -> tuple[Document, Document]:
        """A condition and options that have few rows sorted, where that is cheaper than to go through all."""
        for met, index in mongo_query.narrow(table, where, sort):
            if await self._count(table, met, limit=_FEW, hint=index) < _FEW:
                return {}, {"hint": index}
        if found := mongo_query.by_part(table, where):
            met, index = found
            cursor = self._of(table).find(met, {"_id": 1}, limit=_RARE, hint=index)
            ids = [each["_id"] async for each in cursor]
            if len(ids) < _RARE:
                return {"_id": {"$in": ids}}, {"hint": "_id_"}
        return {}, {}

    async def _replace_all(self, table: Table, rows: Sequence[Row]) -> bool:
        """Whether all were still of their revisions; else some were changed and some not."""
        made: list[pymongo.ReplaceOne[Document]] = []
        for row in rows:
            new = mongo_query.written(table, stored(table, row))
            made.append(pymongo.ReplaceOne({"_id": row.id, "rev": row.rev}, {**new, "rev": row.rev + 1}))
        async with self._said():
            try:
                done = await self._of(table).bulk_write(made, ordered=False) if made else None
            except BulkWriteError as error:
                if _only_taken(error):
                    return False
                raise
        return done is None or done.matched_count == len(rows)

    async def _rewrite_one(self, table: Table, row: Row, new: Row, rewrite: Rewrite) -> None:
        while new != row and not await self.replace(table, new):
            # It was rewritten with others just now, or someone else changed it.
            again = (await self.get(table, [row.id])).get(row.id)
            if again is None:
                return
            if again.rev == row.rev:
                raise cannot_rewrite(self.name, table, row)
            row, new = again, rewrite(again)

    async def _prepare(self) -> None:
        async with self._said(long=True):
            found: Any = await self._collection(_VERSION).find_one({"_id": _VERSION})
            if found is not None:
                self.found_version = found["version"]
                refuse_newer(self.name, found["version"], self.schema)
                if found["version"] == self.schema.version:
                    return
            for table in self.schema.tables:
                if found is None and await self._of(table).find_one() is not None:
                    raise StateError(
                        f"{self.name}: the database {self._database().name!r} has a collection"
                        f" {table.name!r} of something else; name another database in MONGOURI"
                    )
                await self._grow(table)
            if found is None:
                fresh = {"_id": _VERSION, "version": self.schema.version, "table": None, "after": ""}
                await self._collection(_VERSION).update_one(
                    {"_id": _VERSION}, {"$setOnInsert": fresh}, upsert=True
                )

    async def _grow(self, table: Table) -> None:
        singles = mongo_query.single_valued(table)
        missing = {"$or": [{name: {"$exists": False}} for name in singles]}
        filled = {name: {"$ifNull": [f"${name}", mongo_query.NO_VALUE]} for name in singles}
        if singles:
            await self._of(table).update_many(missing, [{"$set": filled}])
        wanted = mongo_query.indexes(table)
        for keys, options in wanted:
            await self._of(table).create_index(keys, **options)
        names = {options["name"] for _, options in wanted}
        for name in set(await self._of(table).index_information()) - names:
            if name.startswith(("index ", "unique ")):
                await self._of(table).drop_index(name)

    def _database(self) -> Any:
        if self._client is None:
            raise StateError(f"{self.name}: is not open")
        try:
            return self._client.get_default_database()
        except ConfigurationError:
            raise ValidationError(
                f"{self.name}: MONGOURI names no database; add one: mongodb://HOST:PORT/DATABASE"
            ) from None

    def _of(self, table: Table) -> Any:
        return self._collection(table.name)

    def _collection(self, name: str) -> Any:
        return self._database().get_collection(
            name, write_concern=WriteConcern("majority", j=True), read_concern=ReadConcern("majority")
        )

    @asynccontextmanager
    async def _writing(self, table: Table) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.written[table.name] += 1

    @asynccontextmanager
    async def _said(self, *, long: bool = False) -> AsyncGenerator[None]:
        """What the server or the way to it says against a call, as an error that names the server."""
        try:
            with nullcontext() if long else pymongo.timeout(self._wait):
                yield
        except WTimeoutError as error:
            raise OperationError(f"{self.name}: too few of its members acknowledged a write") from error
        except OperationFailure as error:
            if error.code in _DENIED:
                raise StateError(f"{self.name}: refuses the user of MONGOURI: {_words(error)}") from error
            raise OperationError(f"{self.name}: {_words(error)}") from error
        except ConnectionFailure as error:
            raise OperationError(f"{self.name}: cannot be reached; is it running?") from error
        except PyMongoError as error:
            raise OperationError(f"{self.name}: {type(error).__name__}") from error


def _failed(error: BulkWriteError) -> list[Document]:
    details: Any = error.details or {}
    return details.get("writeErrors", [])


def _only_taken(error: BulkWriteError) -> bool:
    """Whether nothing failed but writes of values that are taken."""
    details: Any = error.details or {}
    return not details.get("writeConcernErrors") and all(each["code"] == _TAKEN for each in _failed(error))


def _words(error: OperationFailure) -> str:
    details: Any = error.details or {}
    return str(details.get("errmsg") or details.get("codeName") or error.code or type(error).__name__)[:300]
