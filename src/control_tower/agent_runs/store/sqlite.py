"""Rows in one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from control_tower.agent_runs.store import sqlite_query, sqlite_rows, sqlite_schema
from control_tower.agent_runs.store.interface import Position, Row, Sort, Table
from control_tower.agent_runs.store.migrations import Progress, Rewrite, Schema, cannot_rewrite, migrate
from control_tower.agent_runs.store.rows import checked, checked_sort, stored
from control_tower.agent_runs.store.sqlite_query import Sql
from control_tower.agent_runs.store.sqlite_rows import run
from control_tower.agent_runs.store.tables import SCHEMA
from control_tower.agent_runs.store.where import EVERY, Compare, OneOf, Scalar, Where
from control_tower.errors import OperationError, StateError
from control_tower.storage.sqlite_file import open_shared

_Result = TypeVar("_Result")

_READERS = 4
_WAIT = 30.0
"""Seconds to wait for another process's write to end."""

_IDS_AT_ONCE = 500
_REWRITTEN_AT_ONCE = 200
_FEW = 2000

_LITTLE_ROOM = 256 * 1024 * 1024


class SqliteStore:
    """A `Store` in one file.

    Reads and writes run in worker threads, one of which writes. A write is synced to the disk before it is
    acknowledged (`synchronous=FULL`: in write-ahead mode the cheaper setting loses the last ones when power
    fails), one sync a call.
    """

    def __init__(self, path: str | Path, schema: Schema = SCHEMA) -> None:
        """A store that is not opened yet.

        Args:
            path: The file; it and its folder need not be there.
            schema: What it holds.
        """
        self.path = Path(path)
        self.schema = schema
        self.found_version: int | None = None
        self.written = Counter[str]()
        self._writer: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def open(self) -> None:
        if self._writer is not None:
            return
        self._writer = ThreadPoolExecutor(1, "sqlite-writer")
        self._readers = ThreadPoolExecutor(_READERS, "sqlite-reader")
        try:
            self.found_version = await self._write(
                lambda connection: sqlite_schema.prepare(connection, self.path, self.schema)
            )
            await migrate(self, self.schema)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for pool in (self._readers, self._writer):
            if pool is not None:
                await asyncio.to_thread(pool.shutdown)
        self._readers = self._writer = None
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._own = threading.local()

    async def insert(self, table: Table, rows: Sequence[Row]) -> set[str]:
        made = [stored(table, row) for row in rows]

        def work(connection: sqlite3.Connection) -> set[str]:
            return {row.id for row in made if not sqlite_rows.insert(connection, table, row)}

        return await self._write(work, table)

    async def get(self, table: Table, ids: Sequence[str]) -> dict[str, Row]:
        found: list[Row] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            some = OneOf("id", tuple(ids[start : start + _IDS_AT_ONCE]))
            found += await self.find(table, some, documents=True)
        return {row.id: row for row in found}

    async def replace(self, table: Table, row: Row) -> bool:
        made = stored(table, row)
        return await self._write(lambda connection: sqlite_rows.replace(connection, table, made), table)

    async def delete(self, table: Table, where: Where) -> int:
        query = sqlite_query.delete(table, checked(table, where))
        return await self._write(lambda connection: run(connection, query).rowcount, table)

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

        def work(connection: sqlite3.Connection) -> list[Row]:
            few = _few(connection, table, where, sort) if limit is not None else None

            def part(*, valued: bool, after: Position | None, skip: int, limit: int | None) -> Sql:
                return sqlite_query.page(
                    table,
                    where,
                    sort,
                    after=after,
                    skip=skip,
                    limit=limit,
                    documents=documents,
                    valued=valued,
                    few=few,
                )

            def rows(query: Sql) -> list[Row]:
                return [sqlite_rows.read(table, record) for record in run(connection, query)]

            if after is not None and sort.column is not None and after.value is None:
                return rows(part(valued=False, after=after, skip=skip, limit=limit))
            found = rows(part(valued=True, after=after, skip=skip, limit=limit))
            if sort.column is None or (limit is not None and len(found) >= limit):
                return found
            left = 0
            if skip and not found:
                everything = part(valued=True, after=after, skip=0, limit=None)
                count = Sql(f"SELECT COUNT(*) FROM ({everything.text})", everything.values)
                left = max(0, skip - int(run(connection, count).fetchone()[0]))
            rest = None if limit is None else limit - len(found)
            return found + rows(part(valued=False, after=None, skip=left, limit=rest))

        return await self._read(work)

    async def count(self, table: Table, where: Where = EVERY) -> int:
        query = sqlite_query.count(table, checked(table, where))
        return await self._read(lambda connection: int(run(connection, query).fetchone()[0]))

    async def facet(
        self, table: Table, column: str, where: Where = EVERY, *, limit: int = 50
    ) -> list[tuple[Scalar, int]]:
        query = sqlite_query.facet(table, column, checked(table, where), limit)
        found = await self._read(lambda connection: run(connection, query).fetchall())
        is_flag = table.column(column).kind == "flag"
        return [(bool(value) if is_flag else value, number) for value, number in found]

    async def total(self, table: Table, column: str, where: Where = EVERY) -> float:
        query = sqlite_query.total(table, column, checked(table, where))
        return await self._read(lambda connection: float(run(connection, query).fetchone()[0]))

    async def check(self) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            found = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
            return [f"{self.path}: {line}" for line in found if line != "ok"]

        free = shutil.disk_usage(self.path.parent).free
        little = [f"{self.path.parent}: {free // 2**20} MiB free"] if free < _LITTLE_ROOM else []
        return await self._read(work) + little

    async def progress(self) -> Progress:
        """See `migrations.Rewriting`."""
        return await self._read(sqlite_schema.progress)

    async def rewrite(self, now: Progress, table: Table, rewrite: Rewrite) -> str | None:
        """See `migrations.Rewriting`."""
        behind = sqlite_query.page(
            table,
            Compare("id", ">", now.after),
            Sort(),
            after=None,
            skip=0,
            limit=_REWRITTEN_AT_ONCE,
            documents=True,
            valued=True,
        )

        def work(connection: sqlite3.Connection) -> str | None:
            rows = [sqlite_rows.read(table, record) for record in run(connection, behind)]
            for row in rows:
                new = rewrite(row)
                if new != row and not sqlite_rows.replace(connection, table, stored(table, new)):
                    raise cannot_rewrite(str(self.path), table, row)
            return rows[-1].id if rows else None

        return await self._write(work)

    async def advance(self, now: Progress, then: Progress) -> None:
        """See `migrations.Rewriting`."""
        await self._write(lambda connection: sqlite_schema.advance(connection, now, then))

    async def _read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        return await self._in(self._readers, work, "BEGIN")

    async def _write(
        self, work: Callable[[sqlite3.Connection], _Result], table: Table | None = None
    ) -> _Result:
        return await self._in(self._writer, work, "BEGIN IMMEDIATE", table)

    async def _in(
        self,
        pool: ThreadPoolExecutor | None,
        work: Callable[[sqlite3.Connection], _Result],
        begin: str,
        written: Table | None = None,
    ) -> _Result:
        if pool is None:
            raise StateError(f"{self.path}: is not open")

        def call() -> _Result:
            with _said(self.path):
                connection = self._connection()
                connection.execute(begin)
                try:
                    result = work(connection)
                    connection.execute("COMMIT")
                    return result
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    if written is not None:
                        self.written[written.name] += 1

        return await asyncio.get_running_loop().run_in_executor(pool, call)

    def _connection(self) -> sqlite3.Connection:
        """The one of this thread."""
        if not hasattr(self._own, "connection"):
            self._own.connection = _connect(self.path)
            self._connections.append(self._own.connection)
        return self._own.connection


def _few(connection: sqlite3.Connection, table: Table, where: Where, sort: Sort) -> Where | None:
    """A condition that so few rows meet that it is cheaper to sort these than to go through all in order."""
    for part in sqlite_query.narrow(table, where, sort):
        if run(connection, sqlite_query.count_to(table, part, _FEW)).fetchone()[0] < _FEW:
            return part
    return None


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Made here, so that nobody else may read it, nor what SQLite puts beside it. A file that is there must
    # not be opened: closing it would drop the locks of this process's other connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = open_shared(path, _WAIT)
    for setting in ("synchronous=FULL", "foreign_keys=ON", "cache_size=-32000", "mmap_size=268435456"):
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def _said(path: Path) -> Generator[None]:
    """What SQLite says against the file as an error that names it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OperationError(f"{path}: cannot be read or written: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path}: is no database of ours, or is damaged: {error}") from error
    except OSError as error:
        raise OperationError(f"{path}: cannot be opened: {os.strerror(error.errno or errno.EIO)}") from error
