"""What a store of rows must do; SQLite and MongoDB do it alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from control_tower.agent_runs.store.where import EVERY, Scalar, Where
from control_tower.logs.json_text import JsonObject

ColumnValue = Scalar | Sequence[str] | Mapping[str, float] | None


@dataclass(frozen=True)
class Column:
    """What rows can be found and sorted by."""

    name: str
    kind: Literal["text", "number", "flag", "texts", "numbers"]
    """`texts` are several, without order; `numbers` are named ones, `{name: number}`."""


@dataclass(frozen=True)
class Table:
    """Rows of one kind."""

    name: str
    columns: tuple[Column, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """Columns that are looked up together, in this order; `texts` and `numbers` are indexed anyway."""
    unique: tuple[tuple[str, ...], ...] = ()
    """Columns whose values no two rows share; the id is always unique. Rows without a value share nothing."""
    along: tuple[str, ...] = ()
    """Single-valued columns that each `texts` column is indexed together with, so that a list filtered by
    one of several texts and by all of these but the last comes sorted by the last."""
    beside: tuple[str, ...] = ()
    """Single-valued columns that stand at the end of the index of `along` and of those of texts: whether a
    row is meant is then known before it is read."""

    def carried(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Which columns stand at the end of one of `indexes`, behind the id."""
        return self.beside if columns == self.along else ()

    def column(self, name: str) -> Column:
        """A column by its name; `id` is a text column of every table.

        Raises:
            ValueError: There is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise ValueError(f"{self.name} has no column {name!r}") from None

    @cached_property
    def _by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in (*self.columns, Column("id", "text"))}


@dataclass(frozen=True)
class Row:
    """One document, with what it is found by.

    `listed` and `document` may hold any JSON: any keys, integers of any size, lone surrogates. NaN is not
    JSON. They come back as they were given. In all a row may have `rows.LARGEST_ROW` bytes.
    """

    id: str
    columns: Mapping[str, ColumnValue] = field(default_factory=dict[str, ColumnValue])
    """By name; a column left out has no value. Texts come back as a list, each once; without values no column
    comes back."""
    listed: JsonObject = field(default_factory=JsonObject)
    """The little that a list shows."""
    document: JsonObject = field(default_factory=JsonObject)
    """All of it; empty in rows that were read without documents."""
    rev: int = 1
    """Grows by one with each change."""


@dataclass(frozen=True)
class Sort:
    """The order of a list; the id breaks ties in the same direction, rows without the value come last."""

    column: str | None = None
    """None is by id."""
    descending: bool = False
    key: str | None = None
    """Which number, for a column of named numbers."""


@dataclass(frozen=True)
class Position:
    """Behind which row a page begins: its value of the sorted column, and its id."""

    value: str | float | None
    id: str


class Store(Protocol):
    """Rows of every table, safe for several processes at once.

    - A row is written whole or not at all, whatever dies, and is on the disk when the call returns (in
      MongoDB: on those of a majority of the members). Whoever asks afterwards sees it.
    - A call that fails or is killed may have written some of its rows; the same call again does the rest.
      `insert` then says of those that were written that their ids are taken. (SQLite writes all or none.)
    - Text is compared by code point, never by language; `Contains` alone makes ASCII letters equal in
      either case. Numbers are 64-bit floats. A missing value equals only None.
    - Texts of columns and of conditions hold U+FFFD for NUL and for halves of surrogate pairs.

    Every method may raise:
        ValidationError: A row cannot be kept: its size, its id, a value of a column, what is no JSON.
        OperationError: The file or the server cannot be reached or says no; trying later may help.
        StateError: It is not open, or damaged.
        ValueError: A condition or an order that the table's columns cannot answer.
    """

    found_version: int | None
    """The version of the schema that it was of before it was opened, None when it was new or is not open."""

    written: Counter[str]
    """How often this object has inserted, replaced or deleted rows, by table; counted when it is done."""

    async def open(self) -> None:
        """Connects; makes what is missing and takes an older schema to today's.

        Raises:
            StateError: It was written by a newer version, or cannot be opened.
            OperationError: It cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Lets go of connections and files."""
        ...

    async def insert(self, table: Table, rows: Sequence[Row]) -> set[str]:
        """Adds rows.

        Returns:
            Ids of rows that were not added, since their id or a unique value of theirs is taken.
        """
        ...

    async def get(self, table: Table, ids: Sequence[str]) -> dict[str, Row]:
        """Rows by id, with documents; those that are not there are left out."""
        ...

    async def replace(self, table: Table, row: Row) -> bool:
        """Changes a row, if it is still of the revision `row.rev`; the new one is one higher.

        Returns:
            Whether it was; False also when there is none, or a unique value of it is taken.
        """
        ...

    async def delete(self, table: Table, where: Where) -> int:
        """Removes rows; how many."""
        ...

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
        """A page of rows.

        Args:
            table: Where from.
            where: Which.
            sort: In which order; by id unless given.
            after: Behind which row; pages by position never repeat or hide a row that stays.
            skip: How many to leave out first.
            limit: How many at most.
            documents: Whether to read `document` too.
        """
        ...

    async def count(self, table: Table, where: Where = EVERY) -> int:
        """How many rows."""
        ...

    async def facet(
        self, table: Table, column: str, where: Where = EVERY, *, limit: int = 50
    ) -> list[tuple[Scalar, int]]:
        """The values of a column with how many rows have each, the most frequent first, ties by value.

        For `numbers` it is their names.
        """
        ...

    async def total(self, table: Table, column: str, where: Where = EVERY) -> float:
        """The sum of a number column, of rows without a value none."""
        ...

    async def check(self) -> list[str]:
        """What is wrong, a line each."""
        ...
