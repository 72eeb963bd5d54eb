"""Conditions on rows, as values that every store compiles to its own query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scalar = str | float | bool


@dataclass(frozen=True)
class Equals:
    """A single-valued column has a value; None: it has none."""

    column: str
    value: Scalar | None


@dataclass(frozen=True)
class OneOf:
    """A single-valued column has one of some values; of no values none is true."""

    column: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Has:
    """A column of several texts holds one."""

    column: str
    value: str


@dataclass(frozen=True)
class Compare:
    """A column is below or above a value, never so where it has none.

    Text compares by code point.
    """

    column: str
    sign: Literal["<", "<=", ">", ">="]
    value: str | float
    key: str | None = None
    """Which number, for a column of named numbers."""


@dataclass(frozen=True)
class Contains:
    """A text, or one of several texts, has a substring; ASCII letters match in either case."""

    column: str
    text: str


@dataclass(frozen=True)
class Not:
    """A condition does not hold; a row without the value meets it."""

    part: Where


@dataclass(frozen=True)
class All:
    """All conditions hold; of none this is every row."""

    parts: tuple[Where, ...] = ()


@dataclass(frozen=True)
class Any:
    """One condition holds at least; of none this is no row."""

    parts: tuple[Where, ...] = ()


Where = Equals | OneOf | Has | Compare | Contains | Not | All | Any

EVERY = All()
"""Every row."""
