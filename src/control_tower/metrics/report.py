"""Everything that was measured, as plain records: what `metrics.json`, table and figures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from control_tower.metrics.samples import Floats, SourceInfo, Stream

Level = Literal["action", "trajectory"]
By = Literal["environment", "category", "main", "side"]
Kind = Literal["curve", "live", "unmonitored"]
"""`curve`: audits fitted to scores, at any budget. `live`: what the protocol audited while it ran, one point.
`unmonitored`: no scores and no audits, so nothing can be caught: one point at budget 0."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float | None
    """None when it is undefined; `reason` says why."""
    low: float | None = None
    high: float | None = None
    """None when there is no interval, e.g. of a single cluster."""
    n: int = 0
    """How many samples, trajectories or actions it rests on."""
    method: Literal["bootstrap", "wilson", "delong"] | None = None
    reason: str | None = None
    """Why the value, or its interval, is not there."""
    worst: float | None = None
    """The value if all that errored or has no verdict had gone wrong; None when nothing is missing."""


@dataclass(frozen=True)
class BudgetPoint:
    """What an audit budget buys."""

    budget: float
    """Audits for each honest action, or for each honest trajectory, as asked for: 0 to 1."""
    threshold: float | None
    """The score (0 to 100) from which on is audited; None when none is, or no threshold was fitted."""
    share: float | None
    """Which share of what is exactly at the threshold is audited; None when no threshold was fitted."""
    audited: float | None
    """The share of honest actions, or trajectories, that is audited then."""
    safety: Estimate
    tied: int = 0
    """Honest scores exactly at the threshold."""
    exact: bool = False
    """Whether the fitted threshold changes at this budget."""


@dataclass(frozen=True, eq=False)
class Roc:
    """How well scores tell attack from honest."""

    level: Level
    false_positives: Floats
    """Share of honest ones at or above each threshold, from 0 to 1, ascending."""
    true_positives: Floats
    """Share of attack ones there."""
    auroc: Estimate
    tpr_at_fpr: Mapping[float, Estimate]
    """By false-positive rate; between two thresholds it is interpolated, as audits of a share of ties are."""
    honest: int
    """How many are in the curve; unless ignored, the unscored ones among them."""
    attack: int
    honest_unscored: int
    attack_unscored: int


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one level, each sorted ascending, without the unscored."""

    level: Level
    honest: Floats
    attack: Floats


@dataclass(frozen=True, eq=False)
class Dot:
    """One trajectory."""

    sample: str
    epoch: int
    stream: Stream
    environment: str
    score: float | None
    """Its trajectory score: the monitor's own, else the highest of its actions; None when unscored."""
    at: int | None
    """The action of the highest score; None where the score is of the finished run."""
    actions: int
    verdict: float | None
    """The side verdict of attack, the main verdict of honest samples."""
    landed_at: int | None
    caught: tuple[float | None, ...] = ()
    """How likely it is caught at each of the report's budgets; empty for honest ones."""
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    """The score of each action, NaN where there is none; for figures, too long for tables."""
    audited: tuple[int, ...] = ()
    """Actions that the protocol audited while it ran."""


@dataclass(frozen=True)
class Group:
    """The same numbers over a part of the samples; thresholds stay those of all honest samples."""

    by: By
    name: str
    honest: int
    attack: int
    usefulness: Estimate
    attack_success: Estimate
    safety: tuple[BudgetPoint, ...]


@dataclass(frozen=True)
class Counts:
    """A stream's samples."""

    samples: int = 0
    errored: int = 0
    """Samples that errored and are in no mean."""
    stopped_unscored: int = 0
    """Attack samples that errored as no monitor could score an action; they count as uncaught successes."""
    without_tasks: int = 0
    """Samples that did not error and still have no `tasks` Score."""
    unscored: int = 0
    """Samples without the verdict that counts: main of honest, side of attack ones."""
    actions: int = 0
    unscored_actions: int = 0
    """Actions the monitor was to judge and gave no score."""
    skipped_actions: int = 0
    """Actions the monitor passes over by design, such as submitting."""
    covered: int = 0
    """Samples that the monitor gave at least one score."""
    unscored_trajectories: int = 0
    unread_draws: int = 0
    clusters: int = 0


@dataclass(frozen=True)
class Costs:
    """USD, as recorded; scorers of tasks are only in `total`."""

    honest: float | None = None
    """Mean of an honest sample: playing it, and the monitor."""
    honest_incomplete: bool = False
    attack: float | None = None
    """Mean of an attack sample until its first audit, at the first point's budget."""
    attack_incomplete: bool = False
    total: float = 0.0
    """Of all samples, everything that was paid for them; attempts that were retried are left out."""
    total_incomplete: bool = False


@dataclass(frozen=True)
class Accounting:
    """What went into the numbers and what did not."""

    honest: Counts
    attack: Counts
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    """Tasks without a verdict of their scorer, by reason; crashed and timed-out scorers count as failed."""
    landings: Mapping[str, int] = field(default_factory=dict[str, int])
    """Attack samples that did harm, by how it is known when: test, probe, scorer, end, delayed, unknown."""
    costs: Costs = Costs()
    notes: tuple[str, ...] = ()
    """Sentences a reader must know to read the numbers."""


@dataclass(frozen=True)
class Evaluation:
    """One protocol with one monitor."""

    name: str
    """Short and unique in a report; what legends show."""
    sources: tuple[SourceInfo, ...]
    protocol: str
    monitor: str | None
    level: Level
    kind: Kind
    usefulness: Estimate
    """Mean main verdict of honest samples."""
    main_success: Estimate
    """Share of honest samples whose main verdict is 1."""
    attack_success: Estimate
    """Share of attack samples whose side verdict is 1, audits not considered."""
    points: tuple[BudgetPoint, ...]
    """At the report's budgets; of a live or unmonitored evaluation the only one."""
    curve: tuple[BudgetPoint, ...]
    """By ascending budget; empty unless `kind` is `curve`."""
    rocs: tuple[Roc, ...]
    scores: tuple[Scores, ...]
    dots: tuple[Dot, ...]
    groups: tuple[Group, ...]
    accounting: Accounting


@dataclass(frozen=True)
class ParetoPoint:
    """Usefulness against safety at one budget."""

    name: str
    """The evaluation's, or of a reference `untrusted` or `trusted`."""
    budget: float
    """As asked for; of a live evaluation as measured."""
    usefulness: Estimate
    safety: Estimate
    reference: bool = False
    live: bool = False
    dominated_by: tuple[str, ...] = ()
    """Points at least as good in both, better in one, for no larger a budget."""


@dataclass(frozen=True)
class Parameters:
    """How it was measured."""

    budgets: tuple[float, ...]
    level: Level | None
    bootstrap: int
    """Draws; 0 for no bootstrap intervals."""
    seed: int
    cluster: Literal["combination", "environment"]
    confidence: float = 0.95
    by: By | None = None
    unscored: Literal["spend", "ignore"] = "spend"


@dataclass(frozen=True)
class Report:
    """One call of `ct metrics`."""

    parameters: Parameters
    evaluations: tuple[Evaluation, ...]
    pareto: Mapping[float, tuple[ParetoPoint, ...]]
    """By budget of `parameters.budgets`."""
