"""What holds a fleet back: too many alike failures, services that refuse, a budget that is spent."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_FEWEST = 20
_SHARE = 0.5
_SAME_CONFIGURATION = 3
_TURN = 60.0


def surely_above(hits: int, total: int) -> float:
    """The lower bound of a share: with 95 % confidence it is larger (Wilson)."""
    if not total:
        return 0.0
    z, share = 1.96, hits / total
    middle = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - spread) / (1 + z * z / total)


@dataclass
class Breaker:
    """Asks for a pause when first attempts fail alike."""

    finished: int = 0
    causes: Counter[str] = field(default_factory=Counter[str])
    """How many failed of each cause."""
    refused: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The worker of each attempt that found a mistake in the configuration, by cause."""

    def ended(self, attempt: int, worker: str, cause: str | None, *, configuration: bool) -> None:
        """An attempt ended by itself.

        Args:
            attempt: Its number; only first ones count for shares.
            worker: Where it ran.
            cause: Category and fingerprint of a failure; None for a success.
            configuration: Whether every job would fail like this.
        """
        if attempt == 1:
            self.finished += 1
            if cause:
                self.causes[cause] += 1
        if cause and configuration:
            self.refused.setdefault(cause, []).append(worker)

    def tripped(self, workers: int) -> str | None:
        """Why there should be a pause, or None.

        Args:
            workers: How many there are.
        """
        for cause, where in self.refused.items():
            if len(where) >= _SAME_CONFIGURATION and len(set(where)) >= min(2, workers):
                return f"{len(where)} attempts could not run: {cause}"
        if self.finished >= max(_FEWEST, 2 * workers):
            for cause, count in self.causes.most_common(1):
                if surely_above(count, self.finished) > _SHARE:
                    return f"{count} of {self.finished} first attempts failed alike: {cause}"
        return None


@dataclass
class Throttle:
    """One limit for all workers on what they run at once: halved when services refuse, then slowly raised."""

    cap: int | None = None
    """Attempts of the whole fleet; None is no limit."""
    changed: float = 0.0

    def adjust(self, refusals: int, running: int, workers: int, slots: int, now: float) -> None:
        """Looks once a minute.

        Args:
            refusals: How often services refused lately.
            running: Attempts that run.
            workers: How many there are.
            slots: Attempts that all workers could run at once.
            now: Seconds.
        """
        if now - self.changed < _TURN or not workers:
            return
        if refusals:
            self.cap = max(workers, min(self.cap or running, running) // 2)
            self.changed = now
        elif self.cap is not None:
            self.cap = None if self.cap + workers >= slots else self.cap + workers
            self.changed = now

    def per_worker(self, workers: int) -> int | None:
        """The limit of each worker, None for none."""
        return None if self.cap is None else max(1, self.cap // max(1, workers))


@dataclass
class Money:
    """The budgets, and what runs, in USD."""

    budget: float | None = None
    """After which nothing new begins."""
    hard: float | None = None
    """After which what runs is ended."""
    running: dict[str, dict[tuple[str, int], float]] = field(
        default_factory=dict[str, dict[tuple[str, int], float]]
    )
    """What attempts have cost so far, by worker; of one that died it stays spent."""

    @property
    def limit(self) -> float | None:
        """After which nothing new begins: the lower of those that are set."""
        if self.budget is None or self.hard is None:
            return self.hard if self.budget is None else self.budget
        return min(self.budget, self.hard)
