"""The tables of a SQLite file: made when they are missing, grown when they are older."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from control_tower.agent_runs.store.interface import Column, Table
from control_tower.agent_runs.store.migrations import Progress, Schema, refuse_newer
from control_tower.agent_runs.store.sqlite_query import index_name, quoted
from control_tower.errors import StateError

_TYPES = {"text": "TEXT", "number": "REAL", "flag": "INTEGER"}


def prepare(connection: sqlite3.Connection, path: Path, schema: Schema) -> int | None:
    """Makes a new file's tables, or adds to those of an older version what today's have more.

    Returns:
        The version it was of; None for a new file.

    Raises:
        StateError: The file is something else's, or of a newer version.
    """
    names = {
        str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    if names and "schema_version" not in names:
        raise StateError(f"{path}: is a database of something else; give another file")
    found = progress(connection).version if names else None
    refuse_newer(str(path), found or 0, schema)
    if found == schema.version:
        return found
    for table in schema.tables:
        _grow(connection, table, names)
    if found is None:
        connection.execute("CREATE TABLE schema_version (version INTEGER, rewriting TEXT, after TEXT)")
        connection.execute("INSERT INTO schema_version VALUES (?, NULL, '')", (schema.version,))
    return found


def progress(connection: sqlite3.Connection) -> Progress:
    """How far the file is."""
    version, table, after = connection.execute("SELECT * FROM schema_version").fetchone()
    return Progress(version, table, after)


def advance(connection: sqlite3.Connection, now: Progress, then: Progress) -> None:
    """Notes how far it is, if that is still `now`."""
    connection.execute(
        "UPDATE schema_version SET version = ?, rewriting = ?, after = ?"
        " WHERE version = ? AND rewriting IS ? AND after = ?",
        (then.version, then.table, then.after, now.version, now.table, now.after),
    )


def others(table: Table) -> list[str]:
    """What has a table of its own beside the rows."""
    return ["document", *(column.name for column in table.columns if column.kind in ("texts", "numbers"))]


def _grow(connection: sqlite3.Connection, table: Table, names: set[str]) -> None:
    own = quoted(table.name)
    columns = {column.name: _TYPES[column.kind] for column in table.columns if column.kind in _TYPES}
    if table.name not in names:
        said = "".join(f", {quoted(name)} {kind}" for name, kind in columns.items())
        connection.execute(
            f'CREATE TABLE {own} ("row" INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, rev INTEGER NOT NULL,'
            f" several TEXT, listed TEXT NOT NULL{said})"
        )
        connection.execute(
            f"CREATE TABLE {quoted(table.name, 'document')} ({_ROW_OF.format(own)} PRIMARY KEY,"
            " document TEXT NOT NULL)"
        )
    there = {str(row[1]) for row in connection.execute(f"PRAGMA table_info({own})")}
    for name, kind in columns.items():
        if name not in there:
            connection.execute(f"ALTER TABLE {own} ADD COLUMN {quoted(name)} {kind}")
    for column in table.columns:
        if column.kind in ("texts", "numbers"):
            _make_several(connection, table, column)
    _make_indexes(connection, table)


_ROW_OF = '"row" INTEGER REFERENCES {} ("row") ON DELETE CASCADE'


def _make_several(connection: sqlite3.Connection, table: Table, column: Column) -> None:
    side = quoted(table.name, column.name)
    names = ["key", "value"] if column.kind == "numbers" else ["value", *table.along]
    last = table.beside if column.kind == "texts" else ()
    there = [str(found[1]) for found in connection.execute(f"PRAGMA table_info({side})")]
    if there == [*names, "id", "row", *last]:
        return
    if there:
        connection.execute(f"DROP TABLE {side}")
    kinds = {"key": " TEXT", "value": " REAL" if column.kind == "numbers" else " TEXT"}
    columns = ", ".join(quoted(name) + kinds.get(name, "") for name in names)
    key = ", ".join(map(quoted, names))
    row = ", ".join((_ROW_OF.format(quoted(table.name)), *map(quoted, last)))
    connection.execute(
        f"CREATE TABLE {side} ({columns}, id TEXT, {row}, PRIMARY KEY ({key}, id)) WITHOUT ROWID"
    )
    beside = ", ".join(map(quoted, names[:2]))
    connection.execute(f'CREATE INDEX {quoted("row", table.name, column.name)} ON {side} ("row", {beside})')
    if column.kind == "texts":
        along, last = (
            "".join(f", coalesce(t.{quoted(name)}, x'')" for name in named) for named in (table.along, last)
        )
        connection.execute(
            f'INSERT INTO {side} SELECT j.value{along}, t.id, t."row"{last} FROM {quoted(table.name)} t,'
            " json_each(t.several, ?) j",
            (f'$."{column.name}"',),
        )


def _make_indexes(connection: sqlite3.Connection, table: Table) -> None:
    wanted = {f"unique {table.name} {' '.join(columns)}": columns for columns in table.unique}
    wanted |= {
        index_name(table, columns): (*columns, "id", *table.carried(columns)) for columns in table.indexes
    }
    query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
    there = {str(name) for (name,) in connection.execute(query, (table.name,))}
    for name in there - set(wanted):
        connection.execute(f"DROP INDEX {quoted(name)}")
    for name in sorted(set(wanted) - there):
        columns = ", ".join(quoted(column) for column in wanted[name])
        kind = "UNIQUE INDEX" if name.startswith("unique") else "INDEX"
        connection.execute(f"CREATE {kind} {quoted(name)} ON {quoted(table.name)} ({columns})")
