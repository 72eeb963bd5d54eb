"""Conditions and pages as SQL with parameters, so written that lists walk along an index.

A table `T` has one SQL table of rows, `T.document` with documents, and for each column of several values
`T.<column>`, in which `NO_VALUE` stands for the missing value of a column it is indexed along with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any as AnyValue

from control_tower.agent_runs.store.interface import Position, Sort, Table
from control_tower.agent_runs.store.rows import conjuncts, covering_index
from control_tower.agent_runs.store.where import (
    All,
    Any,
    Compare,
    Contains,
    Equals,
    Has,
    Not,
    OneOf,
    Scalar,
    Where,
)

NO_VALUE = b""
"""Sorts behind every text and number."""


@dataclass(frozen=True)
class Sql:
    """Text with a parameter for each of its question marks."""

    text: str
    values: tuple[AnyValue, ...] = ()


@dataclass(frozen=True)
class Source:
    """Rows that meet a condition: what to select from, `t` being the rows, and their order."""

    tables: str
    met: Sql
    value: str
    """What they are sorted by."""
    id: str


@cache
def quoted(*names: str) -> str:
    """A name of a table or column."""
    return '"' + ".".join(names) + '"'


def index_name(table: Table, columns: tuple[str, ...]) -> str:
    """What an index of a table is called."""
    return f"index {table.name} {' '.join((*columns, *table.carried(columns)))}"


def column_names(table: Table) -> list[str]:
    """Columns that stand in the table of rows."""
    return [column.name for column in table.columns if column.kind in ("text", "number", "flag")]


def page(
    table: Table,
    where: Where,
    sort: Sort,
    *,
    after: Position | None,
    skip: int,
    limit: int | None,
    documents: bool,
    valued: bool,
    few: Where | None = None,
) -> Sql:
    """A page of rows that have a value of the sorted column (`valued`), or of those that have none.

    With `few`, one of `narrow` that few rows meet, these are sorted; else rows are met in their order.
    """
    source = _with_value(table, where, sort, few) if valued else _without_value(table, where, sort)
    sign, direction = ("<", "DESC") if sort.descending else (">", "ASC")
    met = source.met
    order = f"{source.id} {direction}"
    if valued and sort.column is not None:
        order = f"{source.value} {direction}, {order}"
        if after is not None:
            place = Sql(f"({source.value}, {source.id}) {sign} (?, ?)", (after.value, after.id))
            met = _all([met, place])
    elif after is not None:
        met = _all([met, Sql(f"{source.id} {sign} ?", (after.id,))])
    names = ["id", "rev", "several", "listed", *column_names(table)]
    chosen = ", ".join(f"t.{quoted(name)}" for name in names)
    chosen += ", d.document" if documents else ", NULL"
    joined = f' LEFT JOIN {quoted(table.name, "document")} d ON d."row" = t."row"' if documents else ""
    end = f"WHERE {met.text} ORDER BY {order} LIMIT ? OFFSET ?"
    if few is not None and valued:
        # Rows are read when they are sorted: what a list shows of them is large.
        found = f'SELECT s."row", {source.value} AS value, s.id FROM {source.tables} {end}'
        tables = f'({found}) p CROSS JOIN {quoted(table.name)} t ON t."row" = p."row"'
        end = f"ORDER BY p.value {direction}, p.id {direction}"
    else:
        tables = source.tables
    text = f"SELECT {chosen} FROM {tables}{joined} {end}"
    return Sql(text, (*met.values, -1 if limit is None else limit, skip))


def narrow(table: Table, where: Where, sort: Sort) -> list[Where]:
    """Conditions that an index of their own answers, but not in the order of the list."""
    if sort.column is None:
        return []
    found: list[Where] = []
    for part in conjuncts(where):
        if isinstance(part, Has) and (not table.along or sort.column != table.along[-1]):
            found.append(part)
        elif isinstance(part, Compare) and part.key is not None:
            found += [] if (part.column, part.key) == (sort.column, sort.key) else [part]
    return found


def count_to(table: Table, part: Where, most: int) -> Sql:
    """How many rows meet one of `narrow`, counted up to a number."""
    side, met = _own(table, part)
    return Sql(f"SELECT COUNT(*) FROM (SELECT 1 FROM {side} s WHERE {met.text} LIMIT {most})", met.values)


def count(table: Table, where: Where) -> Sql:
    """How many rows."""
    source = _unsorted(table, where)
    return Sql(f"SELECT COUNT(*) FROM {source.tables} WHERE {source.met.text}", source.met.values)


def facet(table: Table, name: str, where: Where, limit: int) -> Sql:
    """Values of a column and how many rows have each."""
    column, group = table.column(name), ""
    if column.kind not in ("texts", "numbers"):
        source = _unsorted(table, where, rows=True)
        value, tables = f"t.{quoted(name)}", source.tables
        met = _all([source.met, Sql(f"{value} IS NOT NULL")])
        if index := covering_index(table, name, where):
            tables = f"{quoted(table.name)} t INDEXED BY {quoted(index_name(table, index))}"
        else:
            group = f"+{value}"  # Else SQLite may go through all rows in the order of the values.
    else:
        value = "f.key" if column.kind == "numbers" else "f.value"
        side = quoted(table.name, name)
        along = _along(table.along, conjuncts(where), "f") if column.kind == "texts" else None
        if along is not None and not along.rest:
            tables, met = f"{side} f", _all(along.met)
        elif not conjuncts(where):
            tables, met = f"{side} f", _all([])
        else:
            source = _unsorted(table, where, rows=True)
            tables, met = f'{source.tables} CROSS JOIN {side} f ON f."row" = t."row"', source.met
    text = (
        f"SELECT {value}, COUNT(*) FROM {tables} WHERE {met.text} GROUP BY {group or value}"
        " ORDER BY 2 DESC, 1 LIMIT ?"
    )
    return Sql(text, (*met.values, limit))


def total(table: Table, name: str, where: Where) -> Sql:
    """The sum of a column."""
    source = _unsorted(table, where, rows=True)
    text = f"SELECT total(t.{quoted(name)}) FROM {source.tables} WHERE {source.met.text}"
    return Sql(text, source.met.values)


def delete(table: Table, where: Where) -> Sql:
    """Removes rows; what stands in the other tables goes with them."""
    source = _unsorted(table, where, rows=True)
    text = (
        f'DELETE FROM {quoted(table.name)} WHERE "row" IN'
        f' (SELECT t."row" FROM {source.tables} WHERE {source.met.text})'
    )
    return Sql(text, source.met.values)


def _with_value(table: Table, where: Where, sort: Sort, few: Where | None) -> Source:
    rows = quoted(table.name)
    parts = conjuncts(where)
    has = next((part for part in parts if isinstance(part, Has)), None)
    if few is None and has and table.along and (sort.column, sort.key) == (table.along[-1], None):
        return _through(table, has, [part for part in parts if part is not has], rows=True)
    if few is not None:
        return _of_few(table, few, [part for part in parts if part is not few], sort)
    tables, met, identity = f"{rows} t", [condition(table, where)], 't."id"'
    if sort.column is None:
        return Source(tables, _all(met), identity, identity)
    if sort.key is None:
        value = f"t.{quoted(sort.column)}"
        met.append(Sql(f"{value} IS NOT NULL"))
        return Source(tables, _all(met), value, identity)
    side = quoted(table.name, sort.column)
    met.append(Sql("k.key = ?", (sort.key,)))
    for part in parts:
        if isinstance(part, Compare) and (part.column, part.key) == (sort.column, sort.key):
            met.append(Sql(f"k.value {part.sign} ?", (part.value,)))
    return Source(f'{side} k CROSS JOIN {rows} t ON t."row" = k."row"', _all(met), "k.value", "k.id")


def _of_few(table: Table, few: Where, others: Sequence[Where], sort: Sort) -> Source:
    side, own = _own(table, few)
    along = _along(_carried(table), others, "s") if isinstance(few, Has) else _Along([], list(others))
    tables, met, value = f"{side} s", [own, *along.met], f"t.{quoted(sort.column or '')}"
    if along.rest or sort.key is None:
        tables += f' CROSS JOIN {quoted(table.name)} t ON t."row" = s."row"'
        met.append(condition(table, All(tuple(along.rest))))
    if sort.key is None:
        met.append(Sql(f"{value} IS NOT NULL"))
    else:
        tables += f' CROSS JOIN {quoted(table.name, sort.column or "")} k ON k."row" = s."row"'
        met.append(Sql("k.key = ?", (sort.key,)))
        value = "k.value"
    return Source(tables, _all(met), value, "s.id")


def _own(table: Table, part: Where) -> tuple[str, Sql]:
    """The table that answers one of `narrow`, and the condition on its rows `s`."""
    if isinstance(part, Has):
        return quoted(table.name, part.column), Sql("s.value = ?", (part.value,))
    if isinstance(part, Compare):
        met = Sql(f"s.key = ? AND s.value {part.sign} ?", (part.key, part.value))
        return quoted(table.name, part.column), met
    raise TypeError(part)


def _without_value(table: Table, where: Where, sort: Sort) -> Source:
    column = quoted(sort.column or "")
    missing = Sql(f"t.{column} IS NULL")
    if sort.key is not None:
        side = quoted(table.name, sort.column or "")
        missing = Sql(
            f'NOT EXISTS (SELECT 1 FROM {side} m WHERE m."row" = t."row" AND m.key = ?)', (sort.key,)
        )
    return Source(f"{quoted(table.name)} t", _all([condition(table, where), missing]), 't."id"', 't."id"')


def _unsorted(table: Table, where: Where, *, rows: bool = False) -> Source:
    parts = conjuncts(where)
    has = next((part for part in parts if isinstance(part, Has)), None)
    if has is None:
        return Source(f"{quoted(table.name)} t", condition(table, where), 't."id"', 't."id"')
    return _through(table, has, [part for part in parts if part is not has], rows=rows, sorted_=False)


def _through(table: Table, has: Has, others: list[Where], *, rows: bool, sorted_: bool = True) -> Source:
    """Rows that have one of several texts, found in the index of these."""
    along = _along(_carried(table), others, "s")
    met = [Sql("s.value = ?", (has.value,)), *along.met]
    last = f"s.{quoted(table.along[-1])}" if table.along else "s.id"
    if sorted_:
        met += [Sql(f"{last} < ?", (NO_VALUE,))]
        for part in others:
            if isinstance(part, Compare) and part.column == table.along[-1]:
                met.append(Sql(f"{last} {part.sign} ?", (part.value,)))
    tables = f"{quoted(table.name, has.column)} s"
    if along.rest or rows:
        tables += f' CROSS JOIN {quoted(table.name)} t ON t."row" = s."row"'
        met.append(condition(table, All(tuple(along.rest))))
    return Source(tables, _all(met), last, "s.id")


@dataclass(frozen=True)
class _Along:
    met: list[Sql]
    rest: list[Where]


def _carried(table: Table) -> tuple[str, ...]:
    return (*table.along, *table.beside)


def _along(columns: Sequence[str], parts: Sequence[Where], alias: str) -> _Along:
    """Which conditions can be answered by columns that stand beside several texts."""
    met: list[Sql] = []
    rest: list[Where] = []
    for part in parts:
        if isinstance(part, Equals) and part.column in columns:
            value = NO_VALUE if part.value is None else part.value
            met.append(Sql(f"{alias}.{quoted(part.column)} = ?", (value,)))
        else:
            rest.append(part)
    return _Along(met, rest)


def condition(table: Table, where: Where) -> Sql:
    """A condition on the rows `t`; of a row without the value it may be NULL, which is not true."""
    return _condition(table, where, definite=False)


def _condition(table: Table, where: Where, *, definite: bool) -> Sql:
    match where:
        case All(parts):
            return _all([_condition(table, part, definite=definite) for part in parts])
        case Any(parts):
            found = [_condition(table, part, definite=definite) for part in parts]
            text = " OR ".join(part.text for part in found)
            return Sql(f"({text})" if found else "0", tuple(value for part in found for value in part.values))
        case Not(part):
            inner = _condition(table, part, definite=True)
            return Sql(f"NOT {inner.text}", inner.values)
        case Has(name, value):
            return _among(table, name, Sql("m.value = ?", (value,)))
        case Contains(name, value) if table.column(name).kind == "texts":
            return _among(table, name, Sql("instr(lower(m.value), lower(?)) > 0", (value,)))
        case Compare(name, sign, value, key) if key is not None:
            return _among(table, name, Sql(f"m.key = ? AND m.value {sign} ?", (key, value)))
        case Equals() | OneOf() | Compare() | Contains():
            found = _single(where)
            return Sql(f"coalesce({found.text}, 0)", found.values) if definite else found


def _single(where: Equals | OneOf | Compare | Contains) -> Sql:
    column = f"t.{quoted(where.column)}"
    match where:
        case Equals(_, None):
            return Sql(f"{column} IS NULL")
        case Equals(_, value):
            return Sql(f"{column} = ?", (value,))
        case OneOf(_, values):
            return _one_of(column, values)
        case Compare(_, sign, value):
            return Sql(f"{column} {sign} ?", (value,))
        case Contains(_, text):
            return Sql(f"instr(lower({column}), lower(?)) > 0", (text,))


def _one_of(column: str, values: Sequence[Scalar]) -> Sql:
    return Sql(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))


def _among(table: Table, name: str, met: Sql) -> Sql:
    side = quoted(table.name, name)
    return Sql(f'EXISTS (SELECT 1 FROM {side} m WHERE m."row" = t."row" AND {met.text})', met.values)


def _all(parts: Sequence[Sql]) -> Sql:
    said = [part for part in parts if part.text != "1"]
    text = " AND ".join(part.text for part in said)
    return Sql(f"({text})" if said else "1", tuple(value for part in said for value in part.values))
