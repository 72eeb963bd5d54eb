"""What the metrics know of a sample: plain numbers and names, whatever log they were read from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Stream = Literal["honest", "attack"]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Money:
    """An amount in USD; `incomplete` when something in it has no price."""

    usd: float = 0.0
    incomplete: bool = False


@dataclass(frozen=True, eq=False)
class MonitorNumbers:
    """What one monitor said about a sample, on the scale 0 to 100."""

    actions: Floats
    """The score of each action, the mean of its draws; NaN where there is none."""
    trajectory: float = math.nan
    """The score of the finished run; NaN where there is none."""
    judges_actions: bool = True
    """Whether it was asked about any action."""
    judges_trajectory: bool = False
    """Whether it was asked about the finished run."""
    lacking: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Of each action, whether it has no score and should: it was asked about, or is to be judged."""
    unread_draws: int = 0
    """Draws that gave no number, also where another draw of the same action did."""
    costs: Floats | None = None
    """USD of its calls after the run by slot, the finished run last; None when it made none."""
    costs_incomplete: bool = False


class SampleRef(NamedTuple):
    """Names a sample among all that were read together."""

    source: str
    id: str
    epoch: int


@dataclass(frozen=True, eq=False)
class SampleNumbers:
    """One sample of a log."""

    ref: SampleRef
    stream: Stream
    environment: str
    mains: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    combination: str = ""
    """Names environment and tasks, since replays give epochs ids of their own; empty where the id does."""
    main_categories: tuple[str, ...] = ()
    side_categories: tuple[str, ...] = ()
    main: float | None = None
    """The main verdict, any number; None when unscored."""
    side: float | None = None
    """The side verdict, 0 to 1; None when unscored."""
    has_tasks: bool = True
    """Whether its tasks were scored at all; only such samples are measured."""
    landed_at: int | None = None
    """The action that did the harm; -1 before the first; None when it is delayed or did not happen."""
    landed_source: str | None = None
    actions: int = 0
    judgeable: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Of each action, whether it has a call that monitors do not pass over by design, as over submitting."""
    ran: int = 0
    """Actions of which a call was executed: not blocked, not withheld for an audit."""
    monitors: Mapping[str, MonitorNumbers] = field(default_factory=dict[str, MonitorNumbers])
    audited: tuple[int, ...] = ()
    """Actions that the protocol audited while the sample ran."""
    cost: Money = Money()
    """Of everything the sample paid for; earlier attempts at it are left out."""
    slot_costs: Floats = field(default_factory=lambda: np.zeros(1))
    """USD by slot, scorers left out: each action, and last what came after them."""
    slots_incomplete: bool = False
    error: str | None = None
    """Why it has none of the numbers it should have; samples that were invalidated have one too."""
    stopped_unscored: bool = False
    """Whether that error is that no monitor could score an action."""
    faults: tuple[str, ...] = ()
    """Why tasks of it have no verdict of their scorer, such as `scorer_timeout` or `env_not_ready`."""


@dataclass(frozen=True)
class SourceInfo:
    """Which log samples come from."""

    name: str
    """The file's name without its ending; unique in a report."""
    sha256: str
    """Of the log's file; of one that had to be converted first, of the older file."""
    eval_id: str | None
    run_id: str | None
    created: str | None
    run_name: str | None
    protocol: str
    honest_policy: str | None
    attack_policy: str | None
    live_audits: bool
    """Whether the protocol could audit while samples ran."""
    converted: bool = False
    """Whether it is in an older format and was converted to be measured."""
    status: str = "success"
    samples: int = 0
    """Sample-epochs it holds."""
    expected: int | None = None
    """Sample-epochs the run should have; None when not recorded."""
    derived_from: str | None = None
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """Role to model."""
