"""Token usage as logs hold it (model or role to counts), added and subtracted."""

from __future__ import annotations

from collections.abc import Iterable

from control_tower.logs.json_text import JsonObject, child

USAGE_KEYS = ("model_usage", "role_usage")

Usage = dict[str, dict[str, float]]
"""Model or role to its counts; a count that was not stated is not there, which is not the same as 0."""


def usage_of(row: JsonObject, key: str) -> Usage:
    """The usage under `key` of a sample, a summary or a header's stats."""
    given = child(row, key)
    return {name: {field: n for field, n in child(given, name).items() if _counts(n)} for name in given}


def added(usages: Iterable[Usage]) -> Usage:
    """The sum; a count stated by some is the sum of those."""
    total: Usage = {}
    for usage in usages:
        for name, counts in usage.items():
            sums = total.setdefault(name, {})
            for field, count in counts.items():
                sums[field] = sums.get(field, 0) + count
    return total


def beyond(total: Usage, part: Usage) -> Usage:
    """What `total` has more than `part`; names and counts with nothing more are left out."""
    rest: Usage = {}
    for name, counts in total.items():
        more = {field: round(count - part.get(name, {}).get(field, 0), 9) for field, count in counts.items()}
        if more := {field: count for field, count in more.items() if count > 0}:
            rest[name] = more
    return rest


def _counts(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
