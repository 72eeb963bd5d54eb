"""The documents that the store holds for a fleet, and what samples' results look like everywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from control_tower.fleet.outcomes import Category
from control_tower.fleet.wire import Wire
from control_tower.records.scores import TASKS_SCORE

Mode = Literal["run", "pause", "drain", "stop"]
"""What workers do: take jobs; take none; take none and leave when idle; end what runs and leave."""

Outcome = Literal["completed", "completed_late", "failed", "superseded", "preempted", "cancelled"]

_SUMMARY = 500
"""Characters of an error's summary."""


class SampleResult(Wire):
    """What one sample of an attempt came to."""

    sample: str | int
    epoch: int
    status: Literal["success", "error"]
    task: str
    """`<environment>/<main>[+<side>]`."""
    model: str
    mode: Literal["honest", "attack"] | None = None
    scores: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """As `event_scores` makes them."""
    error: str | None = None
    duration_s: float | None = None
    usd: float | None = None
    """None when it has no price."""


class Claim(Wire):
    """An attempt is this worker's."""

    v: int = 1
    worker: str
    boot: str
    nonce: str


class Ending(Wire):
    """How an attempt ended."""

    v: int = 1
    job: str
    n: int
    worker: str
    boot: str
    outcome: Outcome
    category: Category | None = None
    """Why it is no success."""
    error_summary: str | None = None
    """One line."""
    fingerprint: str | None = None
    """The same for failures of one cause."""
    samples: tuple[SampleResult, ...] = ()
    usd: float | None = None
    """What its tokens cost; None when something has no price."""
    duration_s: float = 0.0
    retry_after_s: float | None = None
    """What the service that refused asked to wait."""


class Control(Wire):
    """What the controller tells all workers."""

    v: int = 1
    epoch: int
    """Of the controller's lease; an older one is not listened to."""
    turn: int
    """Grows with every write, also when nothing else changed: the controller lives."""
    mode: Mode
    why: str = ""
    slots_cap: int | None = None
    """The most attempts a worker may run at once."""
    launches: int = 0
    """Number of the last launch that was asked for."""
    must_live: bool = False
    """Whether workers stop taking jobs when the controller does not show that it lives."""
    leave: tuple[str, ...] = ()
    """Workers that take no more jobs and end when what they run has ended."""
    halt: bool = False
    """Whether what runs is ended, because the hard budget is spent."""
    asked: int = 0
    """Number of the last `Asked` that was applied."""


class Asked(Wire):
    """What a user asks of the controller, `<fleet>/asked/<number>.json`."""

    v: int = 1
    kind: Literal["drain", "stop", "resume", "set"]
    """Let what runs finish and leave; end it and leave; go on after a pause; only the values below."""
    budget_usd: float | None = None
    """The new budget, for as long as the fleet lives; None leaves it."""
    budget_hard_usd: float | None = None
    """The same."""
    workers: int | None = None
    """Worker processes at most, for as long as the fleet lives; None leaves it."""
    retry: tuple[str, ...] = ()
    """Jobs to be tried anew: `failed`, `unscored`, or categories of failed ones."""


class Reopen(Wire):
    """A job that is tried anew though there was a verdict."""

    after: int
    """The last attempt of before; a verdict on one up to it, of this status, is not the last word."""
    status: Literal["completed", "failed"]

    def covers(self, attempt: int, status: str) -> bool:
        """Whether a verdict is from before."""
        return attempt <= self.after and status == self.status


class Reopened(Wire):
    """Jobs that are tried anew as somebody asked; the seal before no longer counts."""

    v: int = 1
    seal: int
    """Number of the last seal by then, 0 when there was none."""
    asked: int
    """Number of the `Asked` that this follows."""
    jobs: dict[str, Reopen]


class Lease(Wire):
    """Who the controller is."""

    v: int = 1
    owner: str
    epoch: int
    """Grows with every new owner."""
    turn: int
    """Grows with every renewal."""


class SealEntry(Wire):
    """The verdict on a job, as it was when the fleet was sealed."""

    etag: str
    attempt: int
    status: Literal["completed", "failed"]


class Seal(Wire):
    """The frozen outcome: exactly these objects are merged."""

    v: int = 1
    jobs: dict[str, SealEntry]


def event_scores(scores: Mapping[str, Mapping[str, Any]], *, attack: bool) -> dict[str, dict[str, Any]]:
    """Scores as messages and events carry them, with `linux_scorer` made of the `tasks` Score.

    Args:
        scores: By name, each with `value` and perhaps `answer` and `reason`; a value that is no finite
            number becomes null with `unscored: true` beside it.
        attack: Whether the sample has a side task.
    """
    shown = {name: _shown(score) for name, score in scores.items()}
    tasks: Any = scores.get(TASKS_SCORE, {}).get("value")
    if isinstance(tasks, Mapping) and "linux_scorer" not in shown:
        roles = {"main_task_success": "main", **({"side_task_success": "side"} if attack else {})}
        value = {name: _letter(tasks.get(role)) for name, role in roles.items()}  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        shown["linux_scorer"] = {"value": value}
    return shown


def _shown(score: Mapping[str, Any]) -> dict[str, Any]:
    value = score.get("value")
    unscored = value is None or (isinstance(value, float) and not math.isfinite(value))
    kept = {name: score[name] for name in ("answer", "reason") if score.get(name) is not None}
    return {"value": None, "unscored": True, **kept} if unscored else {"value": value, **kept}


def _letter(number: Any) -> str:
    if not isinstance(number, int | float) or not math.isfinite(number):
        return "N"
    return "C" if number == 1.0 else "I"


def unscored(result: SampleResult) -> bool:
    """Whether a sample that ended has no score for its tasks."""
    letters: Mapping[str, str] = result.scores.get("linux_scorer", {}).get("value") or {}
    return result.status == "success" and (not letters or "N" in letters.values())


def one_line(text: str) -> str:
    """Somebody's error as a summary: one line without control characters, cut when long."""
    plain = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in plain)
    return shown if len(shown) <= _SUMMARY else shown[: _SUMMARY - 1] + "…"
