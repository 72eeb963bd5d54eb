"""Why attempts fail, and what follows: again, at once or later, or the end of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Category = Literal[
    "prerequisite",
    "eval_internal",
    "eval_error",
    "timeout",
    "hung",
    "sandbox",
    "rate_limit",
    "quota",
    "network",
    "preempted",
    "worker_lost",
    "worker_died",
    "docker",
    "disk",
    "oom_worker",
    "oom_job",
    "budget",
    "cancelled",
]
"""Why an attempt did not end well. Of `worker_lost` and `worker_died` there is hardly ever an account."""

Verdict = Category | Literal["infra", "worker_killer"]
"""Why a job failed: `infra` when machines were lost too often, `worker_killer` when it seems to end them."""


@dataclass(frozen=True)
class Rule:
    """What a category means."""

    counts: Literal["failure", "infra", "neither"]
    retries: int | None = None
    """How often one job may end like this and be tried again; None leaves it to the other limits."""
    delay: float = 0.0
    """Seconds before the first retry; each further one takes twice as long."""
    longest: float = 600.0
    """Seconds of a delay at most."""
    elsewhere: bool = False
    """Whether the next attempt had better run on another worker."""


RULES: dict[Category, Rule] = {
    "prerequisite": Rule("failure", retries=0),
    "eval_internal": Rule("failure", retries=1, elsewhere=True),
    "eval_error": Rule("failure"),
    "timeout": Rule("failure", retries=1),
    "hung": Rule("failure", retries=2),
    "oom_job": Rule("failure", retries=1),
    "sandbox": Rule("infra", retries=3, delay=15, elsewhere=True),
    "network": Rule("infra", retries=5, delay=15),
    "rate_limit": Rule("neither", retries=16, delay=60, longest=1800),
    "quota": Rule("neither"),
    "budget": Rule("neither"),
    "cancelled": Rule("neither"),
    "preempted": Rule("infra"),
    "worker_lost": Rule("infra"),
    "worker_died": Rule("infra"),
    "docker": Rule("infra"),
    "disk": Rule("infra"),
    "oom_worker": Rule("infra"),
}
assert set(RULES) == set(get_args(Category))

_SAFE_AFTER = 2
"""Losses of machines, after which a job is offered only to machines that are not taken back."""

_ALONE_AFTER = 3
"""Workers that died under a job, after which it runs alone."""


_LONGEST_WAIT = 3600.0
"""Seconds that a service which refuses is waited for, whatever it asks."""


def outcome_of(category: Category) -> Literal["failed", "preempted", "cancelled"]:
    """How an attempt ended that did not complete, by why."""
    if category == "preempted":
        return "preempted"
    return "cancelled" if category in ("cancelled", "budget") else "failed"


@dataclass(frozen=True)
class Limits:
    """How often a job is tried."""

    failures: int = 3
    infra: int = 10


@dataclass(frozen=True)
class Again:
    """The job is offered once more."""

    delay: float
    """Seconds from now."""
    safe: bool
    """Only to machines that are not taken back."""
    alone: bool
    """While nothing else runs on the worker."""


@dataclass(frozen=True)
class Fail:
    """The job is over."""

    category: Verdict


def next_step(history: Sequence[Category], limits: Limits, retry_after: float = 0.0) -> Again | Fail:
    """What follows after an attempt that did not end well.

    Args:
        history: How each attempt of the job ended so far, the last one at the end; not empty.
        limits: How often a job is tried.
        retry_after: Seconds that the service which refused asked to wait.
    """
    last = history[-1]
    rule, times = RULES[last], history.count(last)
    if rule.retries is not None and times > rule.retries:
        return Fail(last)
    failures = sum(RULES[one].counts == "failure" for one in history)
    losses = sum(RULES[one].counts == "infra" for one in history)
    deaths = history.count("worker_died")
    if failures >= limits.failures:
        return Fail(last)
    if losses >= limits.infra:
        return Fail("infra")
    if deaths > _ALONE_AFTER:
        return Fail("worker_killer")
    delay = min(rule.delay * 2 ** (times - 1), rule.longest)
    delay = max(delay, min(retry_after, _LONGEST_WAIT))
    return Again(delay, losses >= _SAFE_AFTER, deaths >= _ALONE_AFTER or last == "oom_job")
