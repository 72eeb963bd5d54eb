"""What conditions, orders and pages mean, in plain Python over rows in memory."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any as AnyValue

from control_tower.agent_runs.store import where as w
from control_tower.agent_runs.store.interface import Row, Sort


def kept(row: Row) -> Row:
    """A row as a store gives it back: columns with a value only."""
    return replace(
        row, columns={name: each for name, each in row.columns.items() if each not in (None, [], {})}
    )


def meets(row: Row, where: w.Where) -> bool:
    match where:
        case w.All(parts):
            return all(meets(row, part) for part in parts)
        case w.Any(parts):
            return any(meets(row, part) for part in parts)
        case w.Not(part):
            return not meets(row, part)
        case w.Equals(name, value):
            return value_of(row, name) == value
        case w.OneOf(name, values):
            return value_of(row, name) in values
        case w.Has(name, value):
            return value in (value_of(row, name) or ())
        case w.Contains(name, text):
            found = value_of(row, name)
            texts = [found] if isinstance(found, str) else found or []
            return any(ascii_lower(text) in ascii_lower(each) for each in texts)
        case w.Compare(name, sign, limit, key):
            found = value_of(row, name, key)
            if found is None:
                return False
            return {"<": found < limit, "<=": found <= limit, ">": found > limit, ">=": found >= limit}[sign]


def value_of(row: Row, name: str, key: str | None = None) -> AnyValue:
    value: AnyValue = row.id if name == "id" else row.columns.get(name)
    return (value or {}).get(key) if key is not None else value


def ascii_lower(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def page(
    rows: Sequence[Row],
    where: w.Where,
    sort: Sort | None,
    skip: int,
    limit: int | None,
) -> list[str]:
    sort = sort or Sort()

    def place(row: Row) -> tuple[AnyValue, ...]:
        value = None if sort.column is None else value_of(row, sort.column, sort.key)
        return (1, row.id) if value is None else (0, value, row.id)

    chosen = [row for row in rows if meets(row, where)]
    valued = sorted((row for row in chosen if place(row)[0] == 0), key=place, reverse=sort.descending)
    unvalued = sorted((row for row in chosen if place(row)[0] == 1), key=place, reverse=sort.descending)
    ids = [row.id for row in valued + unvalued]
    return ids[skip:][:limit]


def facet(rows: Sequence[Row], name: str, where: w.Where) -> list[tuple[AnyValue, int]]:
    counted: Counter[AnyValue] = Counter()
    for row in rows:
        if meets(row, where):
            value = value_of(row, name)
            counted.update(
                list(value) if isinstance(value, list | dict) else [] if value is None else [value]
            )
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
