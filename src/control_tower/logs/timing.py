"""Where the time of a log's samples went: each moment in one phase, however much ran at once."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_tower.errors import ValidationError
from control_tower.logs.archive import SampleKey
from control_tower.logs.attempts import open_readable
from control_tower.logs.costs import LogCosts, log_costs, payment
from control_tower.logs.events import is_seat_turn, seconds, spans_around, spans_by_id
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.models.cost import NO_ROLE
from control_tower.models.rates import prompt_tokens

SCORING = "scoring"
SETUP = "setup"
MONITORS = "monitors"
TOOLS = "tools"
WAITING = "waiting"
OTHER = "other"
MODEL = "model "
"""Phases of model calls are named by this and the role."""

_SPANS = {"init": SETUP, "task_setup": SETUP, "scorers": SCORING, "scorer": SCORING}
_MONITOR_SCOPE = "monitor: "


@dataclass(frozen=True)
class CallTime:
    """One call of a model or a tool."""

    sample: str
    phase: str
    what: str
    """The model's or the tool's name."""
    began: float
    """Seconds since the sample began."""
    seconds: float
    waiting: float
    """Seconds of it that were spent waiting, for a connection or to try again."""


@dataclass(frozen=True)
class SampleTime:
    """One sample."""

    sample: str
    seconds: float
    """From its first event to its end, and what monitors took that looked at it afterwards."""
    phases: Mapping[str, float]
    """Seconds by phase; they sum up to `seconds`."""
    retried: int
    """Earlier attempts at it, whose time the log does not have."""


@dataclass
class Tokens:
    """What the models of a role were asked and answered; answers from the response cache are only counted."""

    calls: int = 0
    from_cache: int = 0
    """Answers that came from the response cache."""
    uncounted: int = 0
    """Answers whose tokens the provider did not count."""
    prompt: int = 0
    """With what was read from and written to the provider's prompt cache."""
    cache_read: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that was read from the provider's cache; None without any."""
        return self.cache_read / self.prompt if self.prompt else None


@dataclass
class LogTime:
    """A log's samples."""

    log: str
    clock: float | None = None
    """Seconds from the start of the run to its end; None when it did not end."""
    samples: list[SampleTime] = field(default_factory=list[SampleTime])
    untimed: list[str] = field(default_factory=list[str])
    """Samples without any event that says when it was."""
    tokens: dict[str, Tokens] = field(default_factory=dict[str, Tokens])
    """By role."""
    slowest_calls: list[CallTime] = field(default_factory=list[CallTime])
    costs: LogCosts = field(default_factory=LogCosts)
    damage: int = 0
    """Places at which the log could not be read."""

    @property
    def seconds(self) -> float:
        """The sum over samples, which may have run at once."""
        return sum(sample.seconds for sample in self.samples)

    @property
    def phases(self) -> dict[str, float]:
        """The sum over samples by phase, the longest first."""
        total: defaultdict[str, float] = defaultdict(float)
        for sample in self.samples:
            for phase, spent in sample.phases.items():
                total[phase] += spent
        return dict(_longest_first(total))

    def slowest_samples(self, count: int) -> list[SampleTime]:
        """The samples that took longest."""
        return heapq.nlargest(count, self.samples, key=lambda sample: sample.seconds)


def log_time(path: Path, top: int) -> LogTime:
    """Times a log, one sample at a time.

    Args:
        path: Any log of Inspect; of one that is torn or was not finished, what it holds.
        top: How many of the slowest calls are kept.

    Raises:
        StateError: There is no such file.
        DamagedArchive: It is no log, or a sample in it cannot be read.
        ValidationError: A sample says times that are none.
    """
    with open_readable(path) as archive:
        stats = child(archive.header(), "stats")
        time = LogTime(str(path), clock=_between(stats), damage=len(archive.damage))
        calls: list[CallTime] = []

        def look(sample: JsonObject) -> None:
            nonlocal calls
            key = SampleKey.of(sample)
            try:
                timed, own = sample_time(sample)
            except (TypeError, ValueError):
                raise ValidationError(f"{path}: sample {key}: a time in it is not an ISO time") from None
            if timed is None:
                time.untimed.append(str(key))
                return
            time.samples.append(timed)
            calls = heapq.nlargest(top, [*calls, *own], key=lambda call: call.seconds)
            count_tokens(children(sample, "events"), time.tokens)

        time.costs = log_costs(archive, look=look)
        time.slowest_calls = calls
    return time


def sample_time(sample: JsonObject) -> tuple[SampleTime | None, list[CallTime]]:
    """The time of one sample and of its calls; None when no event of it has a time.

    Of what runs at once each moment counts for one phase only: scoring before setup, before monitors, before
    other models' calls, before tools, before waiting. Inspect says how much of a model call was waiting, not
    when: it is taken from its beginning.
    """
    name = str(SampleKey.of(sample))
    events = children(sample, "events")
    stated = [seconds(sample, "started_at"), *map(seconds, events)]
    moments = [at for at in stated if at is not None]
    if not moments:
        return None, []
    began = min(moments)
    ended = seconds(sample, "completed_at") or max(moments)
    spans = spans_by_id(events)
    stretches = [(began, ended, OTHER), *_span_stretches(events)]
    calls: list[CallTime] = []
    for event in events:
        phase = _phase(event, spans)
        start, end = seconds(event), seconds(event, "completed")
        if phase is None or start is None or end is None or end < start:
            continue
        wait = _waiting(event, end - start) if event.get("event") == "model" else 0.0
        stretches += [(start, start + wait, WAITING), (start + wait, end, phase)]
        what = str(event.get("model") or event.get("function"))
        calls.append(CallTime(name, phase, what, start - began, end - start, wait))
    phases = partition(stretches)
    retried = len(children(sample, "error_retries"))
    return SampleTime(name, sum(phases.values()), phases, retried), calls


def partition(stretches: Iterable[tuple[float, float, str]]) -> dict[str, float]:
    """The seconds of each phase, each moment counted for the first of the phases that run in it.

    Args:
        stretches: Begin, end and phase; they may overlap.
    """
    edges = sorted(
        (at, change, phase)
        for begin, end, phase in stretches
        if end > begin
        for at, change in ((begin, 1), (end, -1))
    )
    running: Counter[str] = Counter()
    found: defaultdict[str, float] = defaultdict(float)
    before = 0.0
    for at, change, phase in edges:
        active = [name for name, count in running.items() if count]
        if active and at > before:
            found[min(active, key=_rank)] += at - before
        before = at
        running[phase] += change
    return {phase: round(total, 6) for phase, total in _longest_first(found)}


def count_tokens(events: Iterable[JsonObject], tokens: dict[str, Tokens]) -> None:
    """Adds the model calls of a sample to the counts of their roles; scripted answers have no tokens."""
    for event in events:
        paid = payment(event)
        if paid is None or event.get("event") != "model" or event.get("pending"):
            continue
        role = tokens.setdefault(paid.role, Tokens())
        usage = child(child(event, "output"), "usage")
        role.calls += 1
        if paid.cached:
            role.from_cache += 1
        elif not usage:
            role.uncounted += 1
        else:
            role.prompt += prompt_tokens(usage)
            role.cache_read += int(usage.get("input_tokens_cache_read") or 0)
            role.output += int(usage.get("output_tokens") or 0)
            role.reasoning += int(usage.get("reasoning_tokens") or 0)


def _longest_first(phases: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(phases.items(), key=lambda item: (-item[1], item[0]))


def _rank(phase: str) -> tuple[int, str]:
    order = (SCORING, SETUP, MONITORS, MODEL, TOOLS, WAITING, OTHER)
    return order.index(MODEL if phase.startswith(MODEL) else phase), phase


def _phase(event: JsonObject, spans: Mapping[str, JsonObject]) -> str | None:
    """What a call was for; None when the event is no call, or a turn of the seat, which only repeats one."""
    kind = event.get("event")
    if kind not in ("model", "tool") or is_seat_turn(event):
        return None
    around = list(spans_around(event, spans))
    for span in around:
        if span.get("type") in _SPANS:
            return _SPANS[str(span.get("type"))]
    role = str(event.get("role") or NO_ROLE)
    in_scope = any(str(span.get("name")).startswith(_MONITOR_SCOPE) for span in around)
    if kind == "model":
        return MONITORS if in_scope or role.partition("/")[0] == "monitor" else MODEL + role
    return MONITORS if in_scope else TOOLS


def _span_stretches(events: Iterable[JsonObject]) -> Iterator[tuple[float, float, str]]:
    """Setup and scoring from begin to end, whatever happens in them."""
    began: dict[str, tuple[float, str]] = {}
    for event in events:
        at, span = seconds(event), str(event.get("id"))
        if at is None:
            continue
        if event.get("event") == "span_begin" and event.get("type") in _SPANS:
            began[span] = at, _SPANS[str(event["type"])]
        elif event.get("event") == "span_end" and span in began:
            begin, phase = began.pop(span)
            yield begin, at, phase


def _waiting(event: JsonObject, duration: float) -> float:
    working: Any = event.get("working_time")
    return max(0.0, duration - float(working)) if isinstance(working, int | float) else 0.0


def _between(stats: JsonObject) -> float | None:
    began, ended = seconds(stats, "started_at"), seconds(stats, "completed_at")
    return None if began is None or ended is None else ended - began
