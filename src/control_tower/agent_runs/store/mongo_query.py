"""Conditions and orders as MongoDB's filters, answered by its indexes.

A row is one document: columns by name, `NO_VALUE` in single-valued ones without a value, so that an index
alone tells these rows; `listed` and `document` as JSON text. A number under a name is kept as text that
sorts by the number, then by the row's id: a wildcard index then holds every name's numbers in list order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any as AnyValue
from typing import cast

from control_tower.agent_runs.store.interface import Column, ColumnValue, Position, Row, Sort, Table
from control_tower.agent_runs.store.rows import Stored, conjuncts, covering_index, read_json
from control_tower.agent_runs.store.where import All, Any, Compare, Contains, Equals, Has, Not, OneOf, Where

NO_VALUE = b""
"""Sorts behind every text, number and flag but these; no comparison meets it."""

Document = dict[str, AnyValue]

_SIGNS = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}
_NOTHING: Document = {"_id": {"$in": []}}
_LOWEST: Mapping[str, AnyValue] = {"text": "", "number": float("-inf"), "flag": False, "numbers": ""}
_HEX = 16
_SIGN_BIT, _ALL_BITS = 1 << 63, (1 << 64) - 1


def written(table: Table, row: Stored) -> Document:
    """The document of a row."""
    made: Document = {"_id": row.id, "rev": row.rev}
    for column in table.columns:
        if column.kind == "texts":
            made[column.name] = list(row.texts.get(column.name, ()))
        elif column.kind == "numbers":
            pairs = row.numbers.get(column.name, {}).items()
            made[column.name] = {_field(key): _ordered(value) + row.id for key, value in pairs}
        else:
            made[column.name] = row.single.get(column.name, NO_VALUE)
    return {**made, "listed": row.listed, "document": row.document}


def read(table: Table, found: Document) -> Row:
    """The row of a document."""
    columns: dict[str, ColumnValue] = {}
    for column in table.columns:
        value = found.get(column.name, NO_VALUE)
        if value in (NO_VALUE, [], {}):
            continue
        if column.kind == "numbers":
            pairs = cast("Mapping[str, str]", value).items()
            value = {key_of(field): _number(text[:_HEX]) for field, text in pairs}
        columns[column.name] = value
    listed, document = read_json(found["listed"]), read_json(found.get("document"))
    return Row(found["_id"], columns, listed, document, found["rev"])


def condition(table: Table, where: Where) -> Document:
    """A condition as a filter."""
    match where:
        case All(parts):
            return {"$and": [condition(table, part) for part in parts]} if parts else {}
        case Any(parts):
            return {"$or": [condition(table, part) for part in parts]} if parts else _NOTHING
        case Not(part):
            return {"$nor": [condition(table, part)]}
        case Equals(name, value):
            return {_name(name): {"$eq": NO_VALUE if value is None else value}}
        case OneOf(name, values):
            return {_name(name): {"$in": list(values)}}
        case Has(name, value):
            return {name: {"$eq": value}}
        case Contains(name, text):
            return {_name(name): {"$regex": "".join(_either_case(letter) for letter in text)}}
        case Compare(name, sign, value, key):
            if key is None:
                return {_name(name): {_SIGNS[sign]: value}}
            # Behind all texts of this number, or before them.
            above = int(sign in (">", "<="))
            bound = f"{int(_ordered(float(value)), 16) + above:0{_HEX}x}"
            return {f"{name}.{_field(key)}": {"$gte" if sign[0] == ">" else "$lt": bound}}


def page(
    table: Table, where: Where, sort: Sort, after: Position | None, *, valued: bool
) -> tuple[Document, list[tuple[str, int]]]:
    """Filter and order of the rows that have a value of the sorted column (`valued`), or that have none."""
    direction = -1 if sort.descending else 1
    sign = "$lt" if sort.descending else "$gt"
    parts = [condition(table, where)]
    if sort.column is None or not valued:
        if sort.column is not None:
            missing = {"$exists": False} if sort.key is not None else {"$eq": NO_VALUE}
            parts.append({_sorted(sort): missing})
        if after is not None:
            parts.append({"_id": {sign: after.id}})
        return _all(parts), [("_id", direction)]
    field = _sorted(sort)
    lowest = _LOWEST[table.column(sort.column).kind]
    parts.append({field: {"$gte": lowest}})
    if sort.key is not None:
        if after is not None:
            parts.append({field: {sign: _ordered(float(cast(float, after.value))) + after.id}})
        return _all(parts), [(field, direction)]
    if after is not None:
        tied: Document = {field: {"$eq": after.value}, "_id": {sign: after.id}}
        parts += [{field: {f"{sign}e": after.value}}, {"$or": [{field: {sign: after.value}}, tied]}]
    return _all(parts), [(field, direction), ("_id", direction)]


def facet(table: Table, name: str, where: Where, limit: int) -> list[Document]:
    """The pipeline that counts rows by a value of theirs."""
    column = table.column(name)
    met = condition(table, where)
    field = _name(name)
    if column.kind in ("texts", "numbers"):
        values: AnyValue = f"${field}"
        if column.kind == "numbers":
            values = {"$map": {"input": {"$objectToArray": values}, "in": "$$this.k"}}
        steps: list[Document] = [{"$match": met}, {"$project": {"v": values}}, {"$unwind": "$v"}]
        by = "$v"
    else:
        steps, by = [{"$match": _all([met, {field: {"$gte": _LOWEST[column.kind]}}])}], f"${field}"
    return [
        *steps,
        {"$group": {"_id": by, "n": {"$sum": 1}}},
        {"$sort": {"n": -1, "_id": 1}},
        {"$limit": limit},
    ]


def indexes(table: Table) -> list[tuple[list[tuple[str, int]], Document]]:
    """Keys and options of every index."""
    made: list[tuple[list[tuple[str, int]], Document]] = []
    for columns in table.unique:
        has_all = {name: {"$gte": _LOWEST[table.column(name).kind]} for name in columns}
        made.append(([(name, 1) for name in columns], {"unique": True, "partialFilterExpression": has_all}))
    made += [([(name, 1) for name in _indexed(table, columns)], {}) for columns in table.indexes]
    for column in table.columns:
        if column.kind == "texts":
            made.append(([(name, 1) for name in _indexed_texts(table, column.name)], {}))
        elif column.kind == "numbers":
            made.append(([(f"{column.name}.$**", 1)], {}))
    return [(keys, {**options, "name": _index_name(keys, options)}) for keys, options in made]


def hint(table: Table, name: str, where: Where) -> Document:
    """The option that has a column of rows read from an index alone, where one can."""
    index = covering_index(table, name, where)
    return {} if index is None else {"hint": _named("index", _indexed(table, index))}


def narrow(table: Table, where: Where, sort: Sort) -> list[tuple[Document, str]]:
    """Of a list by a named number: conditions that an index of texts answers, and this index.

    No index answers them in the order of the list.
    """
    found: list[tuple[Document, str]] = []
    for part in conjuncts(where) if sort.key is not None else ():
        if isinstance(part, Has):
            found.append((condition(table, part), _named("index", _indexed_texts(table, part.column))))
    return found


def by_part(table: Table, where: Where) -> tuple[Document, str] | None:
    """Of a list by a part of a text: what an index answers alone, this part among it, and this index.

    An index in the order of the list holds longer keys, and all of them are read.
    """
    parts = conjuncts(where)
    equal = {part.column: part for part in parts if isinstance(part, Equals)}
    for part in (each for each in parts if isinstance(each, Contains)):
        for columns in table.indexes:
            *first, last = columns
            if last == part.column and equal.keys() >= {*first}:
                met = _all([condition(table, one) for one in (*(equal[name] for name in first), part)])
                return met, _named("index", _indexed(table, columns))
    return None


def single_valued(table: Table) -> list[str]:
    """Columns that hold `NO_VALUE` where they have none."""
    return [column.name for column in table.columns if column.kind in ("text", "number", "flag")]


def value_of(column: Column, value: AnyValue) -> AnyValue:
    """What a facet counted, as it was given."""
    return key_of(value) if column.kind == "numbers" else value


def key_of(field: str) -> str:
    """The name that a field of named numbers stands for."""
    return field[1:].replace("%24", "$").replace("%2E", ".").replace("%25", "%")


def _field(key: str) -> str:
    return ":" + key.replace("%", "%25").replace(".", "%2E").replace("$", "%24")


def _ordered(number: float) -> str:
    """Text that sorts as the number does."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # never -0.0
    return f"{bits ^ (_ALL_BITS if bits & _SIGN_BIT else _SIGN_BIT):0{_HEX}x}"


def _number(text: str) -> float:
    bits = int(text, 16)
    return struct.unpack(">d", struct.pack(">Q", bits ^ (_SIGN_BIT if bits & _SIGN_BIT else _ALL_BITS)))[0]


def _either_case(letter: str) -> str:
    """A pattern for one character; ASCII letters in either case, and no other has a meaning."""
    if letter.isascii() and letter.isalpha():
        return f"[{letter.lower()}{letter.upper()}]"
    return f"\\{letter}" if letter.isascii() and not letter.isalnum() else letter


def _name(column: str) -> str:
    return "_id" if column == "id" else column


def _sorted(sort: Sort) -> str:
    return f"{sort.column}.{_field(sort.key)}" if sort.key is not None else _name(sort.column or "id")


def _all(parts: list[Document]) -> Document:
    said = [part for part in parts if part]
    return said[0] if len(said) == 1 else {"$and": said} if said else {}


def _indexed(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    return (*columns, "_id", *table.carried(columns))


def _indexed_texts(table: Table, column: str) -> tuple[str, ...]:
    return (column, *table.along, "_id", *table.beside)


def _index_name(keys: list[tuple[str, int]], options: Document) -> str:
    return _named("unique" if options else "index", [name for name, _ in keys])


def _named(kind: str, columns: Sequence[str]) -> str:
    return f"{kind} {' '.join(columns)}"
