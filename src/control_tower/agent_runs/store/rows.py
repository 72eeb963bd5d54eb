"""What both stores do to rows and conditions before they write or ask, so that both keep the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any as AnyValue
from typing import cast

from control_tower.agent_runs.store.interface import Column, ColumnValue, Position, Row, Sort, Table
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
from control_tower.errors import ValidationError
from control_tower.logs.json_text import JsonObject

LARGEST_ROW = 15 * 1024 * 1024
"""Bytes of a row in all; MongoDB takes 16 MiB."""

LONGEST_PART = 1000
"""Characters of a text that is looked for within others."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Stored:
    """A row as it is written: columns that have a value, documents as JSON text."""

    id: str
    rev: int
    single: Mapping[str, Scalar]
    texts: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, Mapping[str, float]]
    listed: str
    document: str


def stored(table: Table, row: Row) -> Stored:
    """A row made ready for writing.

    Raises:
        ValidationError: It cannot be kept: its id, a value of a column, what is no JSON, its size.
    """
    where = f"{table.name} {row.id!r}"
    if not row.id or _UNSTORABLE.search(row.id):
        raise ValidationError(f"{where}: is no id; it is empty, or has a NUL or half a surrogate pair in it")
    single: dict[str, Scalar] = {}
    texts: dict[str, tuple[str, ...]] = {}
    numbers: dict[str, dict[str, float]] = {}
    for name, value in row.columns.items():
        column = table.column(name)
        if value is None:
            continue
        try:
            if column.kind == "texts":
                texts[name] = tuple(dict.fromkeys(plain(text) for text in cast("Iterable[str]", value)))
            elif column.kind == "numbers":
                pairs = cast("Mapping[str, float]", value).items()
                numbers[name] = {plain(key): _number(number) for key, number in pairs}
            else:
                single[name] = _scalar(column, value)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValidationError(f"{where}: {name} cannot hold {value!r:.200} ({error})") from None
    made = Stored(
        row.id,
        row.rev,
        single,
        {name: value for name, value in texts.items() if value},
        {name: value for name, value in numbers.items() if value},
        _json(where, row.listed),
        _json(where, row.document),
    )
    size = _size(made)
    if size > LARGEST_ROW:
        raise ValidationError(f"{where}: holds {size:,} bytes; a row may hold {LARGEST_ROW:,}")
    return made


def read_json(text: str | None) -> JsonObject:
    """A document as it was given."""
    return json.loads(text) if text else {}


def plain(text: str) -> str:
    """A text as columns keep it: U+FFFD for NUL and for halves of surrogate pairs."""
    return _UNSTORABLE.sub("\ufffd", text)


def checked(table: Table, where: Where) -> Where:
    """A condition with its values as columns keep them.

    Raises:
        ValueError: It names a column that the table lacks, or asks of one what its kind cannot answer.
        ValidationError: The text to look for is too long.
    """
    match where:
        case All(parts):
            return All(tuple(checked(table, part) for part in parts))
        case Any(parts):
            return Any(tuple(checked(table, part) for part in parts))
        case Not(part):
            return Not(checked(table, part))
        case Equals(name, value):
            column = _of_kind(table, name, "text", "number", "flag")
            return where if value is None else replace(where, value=_scalar(column, value))
        case OneOf(name, values):
            column = _of_kind(table, name, "text", "number", "flag")
            return OneOf(name, tuple(dict.fromkeys(_scalar(column, value) for value in values)))
        case Has(name, text):
            _of_kind(table, name, "texts")
            return Has(name, plain(text))
        case Compare(name, _, value, key):
            column = _of_kind(table, name, *(("text", "number") if key is None else ("numbers",)))
            if isinstance(value, float) and math.isnan(value):
                return Any()
            sought = plain(cast(str, value)) if column.kind == "text" else float(value)
            return replace(where, value=sought, key=None if key is None else plain(key))
        case Contains(name, text):
            _of_kind(table, name, "text", "texts")
            if len(text) > LONGEST_PART:
                raise ValidationError(
                    f"{name}: the text to look for is longer than {LONGEST_PART} characters"
                )
            return Contains(name, plain(text))


def checked_sort(table: Table, sort: Sort | None) -> Sort:
    """An order with its key as columns keep it.

    Raises:
        ValueError: It is by a column that the table lacks or that has no order.
    """
    if sort is None or sort.column in (None, "id"):
        return Sort(descending=sort.descending if sort else False)
    _of_kind(table, sort.column, *(("text", "number", "flag") if sort.key is None else ("numbers",)))
    return sort if sort.key is None else replace(sort, key=plain(sort.key))


def position(row: Row, sort: Sort | None) -> Position:
    """Where a row stands in an order; a page behind it begins with the next one."""
    if sort is None or sort.column in (None, "id"):
        return Position(None, row.id)
    value = row.columns.get(sort.column)
    if sort.key is not None:
        value = cast("Mapping[str, float]", value or {}).get(plain(sort.key))
    return Position(cast("str | float | None", value), row.id)


def conjuncts(where: Where) -> list[Where]:
    """Conditions that all must hold for `where` to."""
    if isinstance(where, All):
        return [part for each in where.parts for part in conjuncts(each)]
    return [where]


def covering_index(table: Table, name: str, where: Where) -> tuple[str, ...] | None:
    """An index from which alone a column of the rows that meet a condition can be read."""
    parts = conjuncts(where)
    asked = {part.column for part in parts if isinstance(part, Equals)}
    if not all(isinstance(part, Equals) for part in parts):
        return None
    found = [index for index in table.indexes if {name, *asked} <= {*index}]
    return min(found, key=lambda index: (index[0] != name, len(index)), default=None)


def _of_kind(table: Table, name: str, *kinds: str) -> Column:
    column = table.column(name)
    if column.kind not in kinds:
        raise ValueError(f"{table.name}.{name} holds {column.kind}, not {' or '.join(kinds)}")
    return column


def _scalar(column: Column, value: ColumnValue) -> Scalar:
    if column.kind == "number":
        return _number(value)
    if column.kind == "flag":
        if not isinstance(value, bool):
            raise TypeError("it is neither true nor false")
        return value
    if not isinstance(value, str):
        raise TypeError("it is no text")
    return plain(value)


def _number(value: AnyValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("it is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it is not finite")
    return number


def _size(row: Stored) -> int:
    """Bytes, at least as many as any store needs."""
    words = [row.id, row.listed, row.document, *map(str, row.single.values())]
    words += [text for texts in row.texts.values() for text in texts]
    keys = [key for numbers in row.numbers.values() for key in numbers]
    return sum(len(word.encode()) + 16 for word in words + keys) + len(keys) * (len(row.id.encode()) + 32)


def _json(where: str, value: JsonObject) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationError(f"{where}: is no JSON ({error})") from None
    return json.dumps(value, separators=(",", ":")) if _UNSTORABLE.search(text) else text
