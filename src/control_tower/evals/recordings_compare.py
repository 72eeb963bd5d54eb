"""A replay beside its recording: which task scores and landings are the same, and where a play left it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_tower.evals.dataset import PlayedSample
from control_tower.evals.plan import RunPlan
from control_tower.evals.recordings import errored_samples
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.divergence import Divergence, first_divergence
from control_tower.logs.json_text import JsonObject, child
from control_tower.records.scores import UnreadableVerdict, read_verdict
from control_tower.scoring.carried import recorded_score

_NOTHING_RECORDED = "the recording has no task score of it"
_ERRORED = "it errored when it was recorded, so it was not replayed"

_SHOWN = 20
"""Differences of a kind that the table lists; JSON has all."""


@dataclass(frozen=True)
class Verdict:
    """What a Score says."""

    number: float | None = None
    """None when it is unscored or not there."""
    landed_at: int | None = None
    landed_source: str | None = None

    @classmethod
    def of(cls, score: JsonObject | None) -> "Verdict":
        """The verdict of a Score as a log holds it."""
        if score is None:
            return cls()
        try:
            number = read_verdict(score.get("value"))
        except UnreadableVerdict:
            number = None
        metadata = child(score, "metadata")
        return cls(number, metadata.get("landed_at"), metadata.get("landed_source"))

    @property
    def landing(self) -> str:
        """Action and source in words."""
        source = f" ({self.landed_source})" if self.landed_source else ""
        return "none" if self.landed_at is None else f"action {self.landed_at}{source}"


@dataclass(frozen=True)
class TaskPair:
    """One task's verdict as recorded and as replayed."""

    sample: str
    task: str
    old: Verdict
    new: Verdict

    @property
    def same_score(self) -> bool:
        """Whether the numbers are equal."""
        return self.old.number == self.new.number

    @property
    def same_landing(self) -> bool:
        """Whether success came with the same action."""
        return self.old.landed_at == self.new.landed_at

    def as_json(self) -> dict[str, Any]:
        """Old and new beside each other."""
        return {
            "sample": self.sample,
            "task": self.task,
            "old": self.old.number,
            "new": self.new.number,
            "old_landed_at": self.old.landed_at,
            "new_landed_at": self.new.landed_at,
            "old_landed_source": self.old.landed_source,
            "new_landed_source": self.new.landed_source,
        }


@dataclass(frozen=True)
class Comparison:
    """A replay's samples beside those they were taken from."""

    source: str
    pairs: tuple[TaskPair, ...]
    """Of the samples that are compared."""
    not_compared: Mapping[str, str]
    """Samples with nothing to compare, and why."""
    divergences: Mapping[str, Divergence]
    """Where plays left their recordings, by sample."""
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """Calls that red had made for itself and that were not played again, by tool."""

    @property
    def samples(self) -> int:
        """How many samples are compared."""
        return len({pair.sample for pair in self.pairs})

    @property
    def scores_differ(self) -> list[TaskPair]:
        """Tasks whose score is another one now."""
        return [pair for pair in self.pairs if not pair.same_score]

    @property
    def landings_differ(self) -> list[TaskPair]:
        """Tasks that succeeded with another action."""
        return [pair for pair in self.pairs if not pair.same_landing]

    @property
    def same(self) -> bool:
        """Whether there was something to compare, all of it, and all is the same."""
        incomplete = any(why not in (_NOTHING_RECORDED, _ERRORED) for why in self.not_compared.values())
        differs = self.scores_differ or self.landings_differ or self.divergences
        return bool(self.pairs) and not (incomplete or differs)

    @property
    def sentence(self) -> str:
        """The result in one line."""
        landed = [pair for pair in self.pairs if (pair.old.landed_at, pair.new.landed_at) != (None, None)]
        equal = self.samples - len({pair.sample for pair in self.scores_differ})
        text = f"task scores equal the recording's for {equal} of {self.samples} samples"
        if landed:
            same = len(landed) - len(self.landings_differ)
            text += f"; landings equal for {same} of {len(landed)}"
        if self.divergences:
            text += f"; {len(self.divergences)} left their recording"
        if self.not_compared:
            text += f"; {len(self.not_compared)} not compared"
        return text

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and value of each line of the result table."""
        yield "replay", self.sentence
        yield from _listed("differs", [_score_line(pair) for pair in self.scores_differ])
        yield from _listed("lands elsewhere", [_landing_line(pair) for pair in self.landings_differ])
        yield from _listed("diverged", [f"{name}: {where}" for name, where in self.divergences.items()])
        yield from _listed("not compared", [f"{name}: {why}" for name, why in self.not_compared.items()])
        if self.left_out:
            calls = ", ".join(f"{tool} {count}" for tool, count in sorted(self.left_out.items()))
            yield "not replayed", f"calls that red made for itself: {calls}"

    def as_json(self) -> dict[str, Any]:
        """The `replay` object of `--format json`."""
        return {
            "source": self.source,
            "same": self.same,
            "compared": self.samples,
            "equal": self.samples - len({pair.sample for pair in self.scores_differ}),
            "differing": [pair.as_json() for pair in self.scores_differ],
            "landing_differing": [pair.as_json() for pair in self.landings_differ],
            "not_compared": [{"sample": name, "why": why} for name, why in self.not_compared.items()],
            "divergences": [{"sample": name, **d.as_json()} for name, d in self.divergences.items()],
            "not_replayed": dict(self.left_out),
        }


def compare(plan: RunPlan, log: Path) -> Comparison:
    """Compare a log with the recordings that its plan took the samples from.

    Args:
        plan: the run.
        log: what came of it.
    """
    pairs: list[TaskPair] = []
    not_compared: dict[str, str] = {}
    divergences: dict[str, Divergence] = {}
    left_out: Counter[str] = Counter()
    with EvalArchive.open(log) as archive:
        played = {SampleKey.of(row): row for row in archive.summaries()}
        for sample in plan.samples:
            origin = sample.selected.origin
            if origin is None:
                continue
            if sample.selected.stream in plan.replaying:
                left_out.update(origin.sample.left_out)
            recording = origin.recording()
            for epoch in range(1, plan.config.epochs + 1):
                key = SampleKey(sample.id, epoch)
                row = played.get(key)
                found = list(_pairs(plan, sample, str(key), child(row, "scores")))
                if why := _nothing_to_compare(row, found):
                    not_compared[str(key)] = why
                else:
                    pairs += [pair for pair in found if pair.old.number is not None]
                if row and (divergence := first_divergence(recording, archive.sample(key))):
                    divergences[str(key)] = divergence
    if plan.replaying:
        for sample in errored_samples(plan.config.task_selection):
            not_compared[f"{sample.key} of the recording"] = _ERRORED
    return Comparison(
        str(plan.config.task_selection.from_run), tuple(pairs), not_compared, divergences, left_out
    )


def _pairs(plan: RunPlan, sample: PlayedSample, name: str, scores: JsonObject) -> Iterator[TaskPair]:
    recorded = sample.selected.origin.sample.scores if sample.selected.origin else {}
    sides = [(task.id, plan.scoring.key("side", task.id)) for task in sample.tasks.sides]
    mains = [(task.id, plan.scoring.key("main", task.id)) for task in sample.tasks.mains]
    for task_id, key in sides + mains:
        old, new = recorded_score(recorded, key), recorded_score(scores, key)
        if old is not None or new is not None:
            yield TaskPair(name, task_id, Verdict.of(old), Verdict.of(new))


def _nothing_to_compare(row: JsonObject | None, pairs: list[TaskPair]) -> str | None:
    if row is None:
        return "it was not played"
    if row.get("error"):
        return "the replay errored"
    if all(pair.old.number is None for pair in pairs):
        return _NOTHING_RECORDED
    if all(pair.new.number is None for pair in pairs):
        return "it was not scored"
    return None


def _listed(name: str, values: list[str]) -> Iterator[tuple[str, str]]:
    for value in values[:_SHOWN]:
        yield name, value
    if len(values) > _SHOWN:
        yield name, f"... and {len(values) - _SHOWN} more"


def _score_line(pair: TaskPair) -> str:
    return f"{pair.sample}: {pair.task} {_number(pair.old)} -> {_number(pair.new)}"


def _landing_line(pair: TaskPair) -> str:
    return f"{pair.sample}: {pair.task} {pair.old.landing} -> {pair.new.landing}"


def _number(verdict: Verdict) -> str:
    return "unscored" if verdict.number is None else f"{verdict.number:g}"
