"""Two logs side by side: which verdicts flipped, and whether rates, catches and costs differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from control_tower.errors import ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child
from control_tower.logs.numbers import sample_numbers
from control_tower.logs.recordings import REPLAY_EPOCH, REPLAY_SAMPLE_ID, check_format
from control_tower.metrics.paired import Significance, mcnemar, sign_flips
from control_tower.metrics.samples import Money, Stream
from control_tower.records.audit import AUDIT_NAME, AttackAudit, read_audit

Role = Literal["main", "side"]
ROLES: tuple[Role, ...] = ("main", "side")

_ARGUMENTS = {
    "protocol": "protocol_args",
    "policy": "policy_args",
    "honest policy": "honest_policy_args",
    "attack policy": "attack_policy_args",
    "model": "model_roles",
}
"""Header metadata by which runs are told apart, beside their policy: each argument, each role's model."""


@dataclass(frozen=True)
class SampleResult:
    """What a log says of one sample."""

    key: SampleKey
    stream: Stream
    main: float | None
    side: float | None
    failed: bool
    """Whether it errored or was declared invalid; its verdicts do not count."""
    cost: Money
    caught: Mapping[str, float]
    """By audit Score, the probability that an attack was caught."""
    replays: SampleKey | None = None
    """The recorded sample that it replays."""

    def verdict(self, role: Role) -> float | None:
        """The verdict that counts; None when there is none."""
        return None if self.failed else self.main if role == "main" else self.side


Pair = tuple[SampleResult, SampleResult]
_Results = dict[SampleKey, SampleResult]


@dataclass(frozen=True)
class Flip:
    """A sample whose verdict differs."""

    sample: str
    epoch: int
    a: float
    b: float


@dataclass(frozen=True)
class Rate:
    """A mean verdict over all samples of a log that have one."""

    value: float | None
    n: int


@dataclass(frozen=True)
class PairedMeans:
    """Means over the same samples of both logs."""

    n: int
    a: float | None
    b: float | None
    significance: Significance | None
    """None when there is no pair."""

    @property
    def difference(self) -> float | None:
        """How much more the second has."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class Verdicts:
    """Main verdicts, or side verdicts, of the samples that both logs have."""

    pairs: int
    failed: tuple[int, int]
    """Of these, samples that errored, in each log."""
    unscored: tuple[int, int]
    """Samples that did not error and have no verdict, in each log."""
    overall: tuple[Rate, Rate]
    """Over all scored samples of each log, also those that the other does not have."""
    paired: PairedMeans
    flips: tuple[Flip, ...]


@dataclass(frozen=True)
class Comparison:
    """Two logs."""

    logs: tuple[str, str]
    samples: tuple[int, int]
    pairs: int
    only_in: tuple[tuple[SampleKey, ...], tuple[SampleKey, ...]]
    differs: Mapping[str, tuple[Any, Any]]
    """What the runs were made with, where it is not the same."""
    verdicts: Mapping[Role, Verdicts]
    """Without a role that no sample of either log has a verdict to give."""
    caught: Mapping[str, PairedMeans]
    """By audit Score that both logs have."""
    costs: tuple[Money, Money]
    """USD of the samples that both have."""
    converted: tuple[bool, bool] = (False, False)
    """Whether they are in an older format and were converted to be compared."""


def compare_logs(a: Path, b: Path) -> Comparison:
    """Compares two logs by their samples of the same id and epoch; a replay's samples go by what they replay.

    Args:
        a: The log to compare with.
        b: The other; differences are how much more it has.

    Raises:
        StateError: One is not there.
        ValidationError: One is damaged, in another format, or says what cannot be.
    """
    with EvalArchive.open(a) as one, EvalArchive.open(b) as other:
        return compare_archives((str(a), one), (str(b), other))


def compare_archives(one: tuple[str, EvalArchive], other: tuple[str, EvalArchive]) -> Comparison:
    """Compares two open logs, each with its name. Raises as `compare_logs`."""
    (a, (header_a, own_a)), (b, (header_b, own_b)) = ((log[0], _read(*log)) for log in (one, other))
    of_a, of_b = _aligned(own_a, own_b)
    pairs = [(of_a[key], of_b[key]) for key in of_a if key in of_b]
    for x, y in pairs:
        if x.stream != y.stream:
            raise ValidationError(
                f"sample {x.key} is {x.stream} in {a} and {y.stream} in {b}: they are not comparable"
            )
    roles: list[Role] = [
        role for role in ROLES if any(_counts(s, role) for s in (*of_a.values(), *of_b.values()))
    ]
    return Comparison(
        logs=(a, b),
        samples=(len(of_a), len(of_b)),
        pairs=len(pairs),
        only_in=(tuple(k for k in of_a if k not in of_b), tuple(k for k in of_b if k not in of_a)),
        differs=_differences(header_a, header_b),
        verdicts={role: _verdicts(role, pairs, of_a.values(), of_b.values()) for role in roles},
        caught=_caught(pairs),
        costs=(_sum(x.cost for x, _ in pairs), _sum(y.cost for _, y in pairs)),
    )


def _read(name: str, archive: EvalArchive) -> tuple[JsonObject, _Results]:
    header = archive.header()
    check_format(name, header)
    try:
        return header, {key: _result(key, archive.sample(key)) for key in archive.sample_keys()}
    except ValidationError as error:
        message = str(error)
        raise ValidationError(message if name in message else f"{name}: {message}") from None


def _aligned(a: _Results, b: _Results) -> tuple[_Results, _Results]:
    """The samples by the names under which most of them pair: their own, or of what they replay."""
    of_a, of_b = ((own, {s.replays or key: s for key, s in own.items()}) for own in (a, b))
    return max(product(of_a, of_b), key=lambda pair: len(pair[0].keys() & pair[1].keys()))


def _replays(sample: JsonObject) -> SampleKey | None:
    metadata = child(sample, "metadata")
    if REPLAY_SAMPLE_ID not in metadata:
        return None
    return SampleKey(str(metadata[REPLAY_SAMPLE_ID]), int(metadata.get(REPLAY_EPOCH) or 1))


def _result(key: SampleKey, sample: JsonObject) -> SampleResult:
    numbers = sample_numbers("", sample)
    scores = child(sample, "scores")
    audits = {
        name: read_audit(child(scores, name).get("value")) for name in scores if AUDIT_NAME.fullmatch(name)
    }
    return SampleResult(
        key,
        numbers.stream,
        numbers.main,
        numbers.side,
        failed=numbers.error is not None,
        cost=numbers.cost,
        caught={name: audit.caught for name, audit in audits.items() if isinstance(audit, AttackAudit)},
        replays=_replays(sample),
    )


def _counts(sample: SampleResult, role: Role) -> bool:
    """Whether a sample has such a verdict to give: honest ones a main one, attacks a side one."""
    return (role == "main") == (sample.stream == "honest") or sample.verdict(role) is not None


def _verdicts(
    role: Role, pairs: Sequence[Pair], of_a: Iterable[SampleResult], of_b: Iterable[SampleResult]
) -> Verdicts:
    counted = [pair for pair in pairs if any(_counts(sample, role) for sample in pair)]
    scored = [
        (a.key, x, y)
        for a, b in counted
        if (x := a.verdict(role)) is not None and (y := b.verdict(role)) is not None
    ]
    return Verdicts(
        pairs=len(counted),
        failed=_number(counted, lambda sample: sample.failed),
        unscored=_number(counted, lambda sample: not sample.failed and sample.verdict(role) is None),
        overall=(_rate(of_a, role), _rate(of_b, role)),
        paired=_means(scored),
        flips=tuple(Flip(key.id, key.epoch, x, y) for key, x, y in scored if x != y),
    )


def _number(pairs: Iterable[Pair], has: Callable[[SampleResult], bool]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(has(a) for a, _ in listed), sum(has(b) for _, b in listed)


def _rate(samples: Iterable[SampleResult], role: Role) -> Rate:
    known = [value for sample in samples if (value := sample.verdict(role)) is not None]
    return Rate(_mean(known), len(known))


def _means(pairs: Sequence[tuple[SampleKey, float, float]]) -> PairedMeans:
    return PairedMeans(
        n=len(pairs),
        a=_mean([x for _, x, _ in pairs]),
        b=_mean([y for _, _, y in pairs]),
        significance=_significance(pairs) if pairs else None,
    )


def _significance(pairs: Sequence[tuple[SampleKey, float, float]]) -> Significance:
    """McNemar's test of yes-or-no verdicts; else sign flips, where epochs of one sample flip together."""
    by_id: defaultdict[str, list[float]] = defaultdict(list)
    for key, x, y in pairs:
        by_id[key.id].append(y - x)
    if len(by_id) == len(pairs) and all({x, y} <= {0.0, 1.0} for _, x, y in pairs):
        return mcnemar(sum(x > y for _, x, y in pairs), sum(y > x for _, x, y in pairs))
    found = sign_flips([sum(differences) for differences in by_id.values()])
    together = "" if len(by_id) == len(pairs) else "; epochs of a sample flip together"
    return Significance(found.p, found.method + together)


def _caught(pairs: Sequence[Pair]) -> dict[str, PairedMeans]:
    attacks = [pair for pair in pairs if not pair[0].failed and not pair[1].failed]
    both: defaultdict[str, list[tuple[SampleKey, float, float]]] = defaultdict(list)
    for a, b in attacks:
        for name in a.caught.keys() & b.caught.keys():
            both[name].append((a.key, a.caught[name], b.caught[name]))
    return {name: _means(both[name]) for name in sorted(both)}


def _differences(a: JsonObject, b: JsonObject) -> dict[str, tuple[Any, Any]]:
    one, other = (child(child(header, "eval"), "metadata") for header in (a, b))
    found: dict[str, tuple[Any, Any]] = {"policy": (one.get("policy"), other.get("policy"))}
    for what, key in _ARGUMENTS.items():
        x, y = child(one, key), child(other, key)
        found |= {f"{what} {name}": (x.get(name), y.get(name)) for name in {**x, **y}}
    return {name: values for name, values in found.items() if values[0] != values[1]}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _sum(costs: Iterable[Money]) -> Money:
    listed = list(costs)
    return Money(sum(cost.usd for cost in listed), any(cost.incomplete for cost in listed))
