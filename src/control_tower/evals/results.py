"""What a run came to, read from its log: counted, with everything that could not be scored said aloud."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from control_tower.errors import on_one_line
from control_tower.evals.oversight import Audits, count_audits, count_decisions, count_unscored_actions
from control_tower.game.play import OUTCOME, STEPS
from control_tower.logs.archive import EvalArchive
from control_tower.logs.costs import LogCosts, by_model, by_role, log_costs, total
from control_tower.models.cost import Cost
from control_tower.models.rate_sources import Prices
from control_tower.records.scores import TASKS_SCORE


@dataclass(frozen=True)
class Tally:
    """The verdicts of one kind: how many samples, how many scored, and their mean."""

    samples: int = 0
    numbers: tuple[float, ...] = ()
    unscored: int = 0
    errored: int = 0

    @property
    def mean(self) -> float | None:
        """The mean over the scored ones, None when none is."""
        return sum(self.numbers) / len(self.numbers) if self.numbers else None


@dataclass(frozen=True)
class Results:
    """A run's numbers."""

    log: Path
    status: str
    """The log's status; `error` also when every sample errored."""
    expected: int
    """Sample-epochs that the run should have."""
    usefulness: Tally
    """Main verdicts of honest samples."""
    side_success: Tally
    """Side verdicts of attack samples."""
    outcomes: Mapping[str, int] = field(default_factory=dict[str, int])
    """How the plays ended, limits and errors included."""
    steps: tuple[int, ...] = ()
    audits: Audits = field(default_factory=Audits)
    decisions: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many actions were audited, blocked, deferred, edited and resampled."""
    monitored_actions: int = 0
    """Actions that monitors were asked about."""
    unscored_actions: int = 0
    """Those of which no monitor gave a number."""
    costs: LogCosts = field(default_factory=LogCosts)
    scorer_faults: Mapping[str, int] = field(default_factory=dict[str, int])
    """Scores that failed because the scorer crashed or timed out, by reason."""
    errors: tuple[str, ...] = ()
    """What the errored samples said, one line each, without repetition."""

    @property
    def samples(self) -> int:
        """Sample-epochs in the log."""
        return self.usefulness.samples + self.side_success.samples

    @property
    def unscored(self) -> int:
        """Samples that ran but whose verdict is missing."""
        return self.usefulness.unscored + self.side_success.unscored

    @property
    def errored(self) -> int:
        """Samples that errored."""
        return self.usefulness.errored + self.side_success.errored

    @property
    def missing(self) -> int:
        """Sample-epochs that the log lacks."""
        return max(0, self.expected - self.samples)

    @property
    def all_errored(self) -> bool:
        """Whether nothing but errors came of it."""
        return self.samples > 0 and self.errored == self.samples

    @property
    def cost(self) -> Cost:
        """What was paid, over all roles."""
        return total(self.costs.recorded)

    def as_json(self) -> dict[str, Any]:
        """The one object that `--format json` prints."""
        return {
            "status": self.status,
            "log": str(self.log),
            "run_id": None,
            "samples": self.samples,
            "missing": self.missing,
            "usefulness": self.usefulness.mean,
            "side_success": self.side_success.mean,
            "audits": self.audits.as_json(),
            "decisions": dict(self.decisions),
            "monitored_actions": self.monitored_actions,
            "unscored_actions": self.unscored_actions,
            "honest": _tally_json(self.usefulness),
            "attack": _tally_json(self.side_success),
            "unscored": self.unscored,
            "errored": self.errored,
            "refused": self.outcomes.get("refused", 0),
            "outcomes": dict(self.outcomes),
            "scorer_faults": dict(self.scorer_faults),
            "steps_mean": sum(self.steps) / len(self.steps) if self.steps else None,
            "cost_usd": self.cost.usd,
            "cost_incomplete": self.cost.incomplete,
            "cost_by_role": {
                role: {
                    **cost.as_json(),
                    "by_model": {model: c.as_json() for model, c in self.costs.recorded[role].items()},
                }
                for role, cost in by_role(self.costs.recorded).items()
            },
            "cost_by_model": {model: cost.as_json() for model, cost in by_model(self.costs.recorded).items()},
            "cached_answers": self.costs.cached,
            "fresh_cost": total(self.costs.fresh).as_json(),
        }


def read_results(log: Path, attack_ids: Iterable[str], expected: int) -> Results:
    """The results of a log.

    Args:
        log: the `.eval` file.
        attack_ids: ids of the samples that have a side task.
        expected: sample-epochs that the run should have.
    """
    with EvalArchive.open(log) as archive:
        header = archive.header()
        summaries = archive.summaries()
        decisions: Counter[str] = Counter()
        costs = log_costs(archive, Prices().find, lambda sample: count_decisions(sample, decisions))
    attacks = set(attack_ids)
    streams: dict[bool, list[Mapping[str, Any]]] = {False: [], True: []}
    for summary in summaries:
        streams[str(summary["id"]) in attacks].append(summary)
    usefulness = _tally(streams[False], "main")
    side_success = _tally(streams[True], "side")
    asked, unscored = count_unscored_actions(summaries)
    status = str(header.get("status"))
    samples = usefulness.samples + side_success.samples
    if samples and samples == usefulness.errored + side_success.errored:
        status = "error"
    return Results(
        log=log,
        status=status,
        expected=expected,
        usefulness=usefulness,
        side_success=side_success,
        outcomes=dict(Counter(outcome(summary) for summary in summaries)),
        steps=tuple(m[STEPS] for m in (_object(s.get("metadata")) for s in summaries) if STEPS in m),
        scorer_faults=dict(Counter(reason for summary in summaries for reason in _faults(summary))),
        audits=count_audits(summaries, attacks),
        decisions=dict(decisions),
        monitored_actions=asked,
        unscored_actions=unscored,
        costs=costs,
        errors=tuple(dict.fromkeys(on_one_line(s["error"]) for s in summaries if s.get("error"))),
    )


def outcome(summary: Mapping[str, Any]) -> str:
    """How a sample's play ended: `error`, `limit:<type>`, or the play's own outcome."""
    if summary.get("error"):
        return "error"
    if summary.get("limit"):
        return f"limit:{summary['limit']}"
    return str(_object(summary.get("metadata")).get(OUTCOME, "unknown"))


def _faults(summary: Mapping[str, Any]) -> Iterator[str]:
    """Why Scores of a sample are failed without a verdict of the scorer."""
    for score in _object(summary.get("scores")).values():
        reason = _object(score).get("reason")
        if reason in ("scorer_error", "scorer_timeout"):
            yield str(reason)


def _tally(summaries: Iterable[Mapping[str, Any]], role: str) -> Tally:
    samples, numbers, unscored, errored = 0, list[float](), 0, 0
    for summary in summaries:
        samples += 1
        value = _object(_object(_object(summary.get("scores")).get(TASKS_SCORE)).get("value"))
        if summary.get("error"):
            errored += 1
        elif value.get(role) is None:
            unscored += 1
        else:
            numbers.append(float(value[role]))
    return Tally(samples, tuple(numbers), unscored, errored)


def _tally_json(tally: Tally) -> dict[str, Any]:
    return {
        "samples": tally.samples,
        "scored": len(tally.numbers),
        "unscored": tally.unscored,
        "errored": tally.errored,
        "mean": tally.mean,
    }


def _object(value: Any) -> dict[str, Any]:
    """A JSON object, empty where there is none."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
