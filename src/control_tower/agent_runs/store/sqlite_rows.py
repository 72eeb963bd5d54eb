"""Rows written to and read from the tables of a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from control_tower.agent_runs.store.interface import ColumnValue, Row, Table
from control_tower.agent_runs.store.rows import Stored, read_json
from control_tower.agent_runs.store.sqlite_query import NO_VALUE, Sql, column_names, quoted
from control_tower.agent_runs.store.sqlite_schema import others
from control_tower.agent_runs.store.where import Scalar


def run(connection: sqlite3.Connection, query: Sql) -> sqlite3.Cursor:
    """Executes a query."""
    return connection.execute(query.text, query.values)


def insert(connection: sqlite3.Connection, table: Table, row: Stored) -> bool:
    """Adds a row; False when its id or a unique value is taken."""
    values = {"id": row.id, "rev": row.rev, **_values(row)}
    names = ", ".join(quoted(name) for name in values)
    done = connection.execute(
        f"INSERT INTO {quoted(table.name)} ({names}) VALUES ({', '.join('?' * len(values))})"
        " ON CONFLICT DO NOTHING RETURNING row",
        tuple(values.values()),
    ).fetchall()
    for (number,) in done:
        _write_others(connection, table, number, row)
    return bool(done)


def replace(connection: sqlite3.Connection, table: Table, row: Stored) -> bool:
    """Changes a row that is still of its revision; False when it is not, or a unique value is taken."""
    values = dict.fromkeys(column_names(table)) | _values(row)
    changes = ", ".join(f"{quoted(name)} = ?" for name in values)
    try:
        done = connection.execute(
            f"UPDATE {quoted(table.name)} SET rev = rev + 1, {changes}"
            " WHERE id = ? AND rev = ? RETURNING row",
            (*values.values(), row.id, row.rev),
        ).fetchall()
    except sqlite3.IntegrityError:
        return False
    for (number,) in done:
        for other in others(table):
            connection.execute(f'DELETE FROM {quoted(table.name, other)} WHERE "row" = ?', (number,))
        _write_others(connection, table, number, row)
    return bool(done)


def read(table: Table, record: Sequence[Any]) -> Row:
    """A row from what `sqlite_query.page` selects."""
    identity, rev, several, listed, *values, document = record
    columns: dict[str, ColumnValue] = {}
    for name, value in zip(column_names(table), values, strict=True):
        if value is not None:
            columns[name] = bool(value) if table.column(name).kind == "flag" else value
    return Row(identity, columns | read_json(several), read_json(listed), read_json(document), rev)


def _values(row: Stored) -> dict[str, Scalar | None]:
    several = {**row.texts, **row.numbers}
    text = json.dumps(several, ensure_ascii=False, separators=(",", ":")) if several else None
    return {"several": text, "listed": row.listed, **row.single}


def _write_others(connection: sqlite3.Connection, table: Table, number: int, row: Stored) -> None:
    if row.document != "{}":
        side = quoted(table.name, "document")
        connection.execute(f"INSERT INTO {side} VALUES (?, ?)", (number, row.document))
    along = [row.single.get(name, NO_VALUE) for name in table.along]
    beside = [row.single.get(name, NO_VALUE) for name in table.beside]
    for name, texts in row.texts.items():
        rows = [(text, *along, row.id, number, *beside) for text in texts]
        _insert_all(connection, quoted(table.name, name), rows)
    for name, pairs in row.numbers.items():
        rows = [(key, value, row.id, number) for key, value in pairs.items()]
        _insert_all(connection, quoted(table.name, name), rows)


def _insert_all(connection: sqlite3.Connection, side: str, rows: Sequence[tuple[Any, ...]]) -> None:
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {side} VALUES ({marks})", rows)
