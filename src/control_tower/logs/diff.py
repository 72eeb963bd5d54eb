"""How two logs differ: their headers, which samples they hold, and where in each sample they first part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, cast

from control_tower.logs.archive import DERIVED, REDUCTIONS, EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject

Ignored = Literal["ids", "times"]

_TIMES = frozenset(
    {"timestamp", "completed", "started_at", "completed_at", "created", "modified", "working_start"}
    | {"working_time", "total_time", "time", "script_start_time", "scorer_timings"}
)
_IDS = frozenset(
    {"id", "uuid", "span_id", "parent_id", "agent_span_id", "message_id", "tool_call_id", "deferred_from"}
    | {"edited_from", "eval_id", "run_id", "task_id"}
)
_NAMED = ("eval.dataset", "metadata", "scores")
"""Parts in which an `id` is not made up by a run: it names a task, an environment or a sample."""

_WHOLE = ("scores", "error")
"""Parts of a sample of which each difference is given; of the others the first."""

_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One place at which two logs are not alike."""

    where: str
    """`header`, `reductions`, or the sample."""
    path: str
    """The place in the JSON, such as `events[3].output.model`; a count is `len(events)`; empty: all."""
    only_in: Literal["a", "b"] | None
    """Set where one log has the place and the other has not."""
    a: Any
    b: Any


@dataclass
class Comparison:
    """What is passed over when two JSON values are compared.

    Ids that are ignored must still stand for each other: the same two each time.
    """

    ignored: frozenset[Ignored] = frozenset()
    _forth: dict[str, str] = field(default_factory=dict[str, str])
    _back: dict[str, str] = field(default_factory=dict[str, str])

    def differences(self, a: Any, b: Any, path: str = "") -> Iterator[Difference]:
        """Each place at which two values differ, in the order of `a`; NaN is as good as NaN."""
        if isinstance(a, dict) and isinstance(b, dict):
            yield from self._of_objects(cast(JsonObject, a), cast(JsonObject, b), path)
        elif isinstance(a, list) and isinstance(b, list):
            pairs = zip_longest(cast("list[Any]", a), cast("list[Any]", b), fillvalue=_ABSENT)
            for index, (one, other) in enumerate(pairs):
                yield from self._of_items(one, other, f"{path}[{index}]")
        elif not _alike(a, b):
            yield Difference("", path, None, a, b)

    def _of_objects(self, a: JsonObject, b: JsonObject, path: str) -> Iterator[Difference]:
        for key in [*a, *(key for key in b if key not in a)]:
            place = f"{path}.{key}" if path else key
            one, other = a.get(key, _ABSENT), b.get(key, _ABSENT)
            # A change of the state names the key whose value it sets.
            named = str(a.get("path")).rsplit("/", 1)[-1] if key == "value" else key
            if not self._passed_over(named, one, other, path):
                yield from self._of_items(one, other, place)

    def _of_items(self, a: Any, b: Any, path: str) -> Iterator[Difference]:
        if a is _ABSENT:
            yield Difference("", path, "b", None, b)
        elif b is _ABSENT:
            yield Difference("", path, "a", a, None)
        else:
            yield from self.differences(a, b, path)

    def _passed_over(self, key: str, a: Any, b: Any, path: str) -> bool:
        if "times" in self.ignored and key in _TIMES:
            return not isinstance(a, bool) and not isinstance(b, bool)
        if "ids" not in self.ignored or key not in _IDS or not (isinstance(a, str) and isinstance(b, str)):
            return False
        if key == "id" and (not path or path.startswith(_NAMED)):
            return False
        return self._forth.setdefault(a, b) == b and self._back.setdefault(b, a) == a


def diff_logs(a: Path | str, b: Path | str, ignore: Iterable[Ignored] = ()) -> Iterator[Difference]:
    """How two logs differ, header first, then the samples of `a` in their order, then those only `b` has.

    Of a sample are given: each difference of its Scores and error, how many messages and events there
    are, and of each other part the first difference. One sample of each is in memory at a time.

    Args:
        a: A log, or its `s3://` address.
        b: Another.
        ignore: `times` passes over when things happened and how long they took; `ids` over ids made up
            by the run, as long as they stand for each other.

    Raises:
        StateError: There is no such file.
        DamagedArchive: A log cannot be read.
    """
    ignored = frozenset(ignore)
    with EvalArchive.open(a) as one, EvalArchive.open(b) as other:
        headers = [
            {key: value for key, value in archive.header().items() if key not in DERIVED}
            for archive in (one, other)
        ]
        yield from _at("header", Comparison(ignored).differences(headers[0], headers[1]))
        reductions = [_reductions(archive) for archive in (one, other)]
        yield from _at("reductions", islice(Comparison(ignored).differences(reductions[0], reductions[1]), 1))
        ours, theirs = (dict.fromkeys(archive.sample_keys()) for archive in (one, other))
        for key in ours:
            if key not in theirs:
                yield Difference(f"sample {key}", "", "a", None, None)
            else:
                yield from _at(f"sample {key}", _samples(one, other, key, ignored))
        for key in theirs:
            if key not in ours:
                yield Difference(f"sample {key}", "", "b", None, None)


def _samples(
    one: EvalArchive, other: EvalArchive, key: SampleKey, ignored: frozenset[Ignored]
) -> Iterator[Difference]:
    if one.members.read(key.member) == other.members.read(key.member):
        return
    a, b = one.sample(key), other.sample(key)
    comparison = Comparison(ignored)
    for part in ("messages", "events"):
        counts = [len(cast("list[Any]", sample.get(part) or [])) for sample in (a, b)]
        if counts[0] != counts[1]:
            yield Difference("", f"len({part})", None, *counts)
    for part in [*a, *(part for part in b if part not in a)]:
        only = [{part: sample[part]} if part in sample else {} for sample in (a, b)]
        yield from islice(comparison.differences(only[0], only[1]), None if part in _WHOLE else 1)


def _at(where: str, differences: Iterable[Difference]) -> Iterator[Difference]:
    return (Difference(where, each.path, each.only_in, each.a, each.b) for each in differences)


def _reductions(archive: EvalArchive) -> Any:
    return archive.json(REDUCTIONS) if REDUCTIONS in archive.members.members else []


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
