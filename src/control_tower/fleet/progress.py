"""How far a fleet is, in numbers and in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass

from control_tower.fleet.documents import Mode
from control_tower.fleet.reconcile import State

_VERDICTS = 10
"""Verdicts of known duration before anything is said of the time left."""

_SURE = 1.96


@dataclass(frozen=True)
class Progress:
    """How far a fleet is; all of its jobs count, not only those of this controller."""

    done: int = 0
    """Jobs with a verdict."""
    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0
    """Jobs that a worker holds."""
    retrying: int = 0
    """Jobs that wait for another attempt."""
    workers: int = 0
    """That were heard of and are not gone."""
    spot: int = 0
    """Of these, on machines that are taken back."""
    usd: float | None = 0.0
    """Tokens and machines so far; None when nothing has a price."""
    unpriced: int = 0
    """Attempts that ended and have no price; they are not in `usd`."""
    budget: float | None = None
    """USD."""
    seconds_left: tuple[float, float] | None = None
    """From, to; None while it cannot be said."""
    mode: Mode = "run"
    why: str = ""
    """Of another mode than `run`."""

    def line(self) -> str:
        """In one line."""
        share = f"[{self.done}/{self.total}] {self.completed} done, {self.failed} failed"
        parts = [f"{share}, {self.running} running, {self.retrying} retrying"]
        workers = f"{self.workers} {'worker' if self.workers == 1 else 'workers'}"
        parts.append(workers + (f" ({self.spot} spot)" if self.spot else ""))
        usd = "$—" if self.usd is None else f"${self.usd:.2f}"
        usd += "" if self.budget is None else f" of ${self.budget:g}"
        unpriced = f" and {self.unpriced} unpriced" if self.unpriced and self.usd is not None else ""
        parts.append(usd + unpriced)
        if self.mode == "run":
            parts += [_left(*self.seconds_left)] if self.seconds_left and self.done < self.total else []
        else:
            said = {"pause": "paused", "drain": "draining", "stop": "stopping"}[self.mode]
            parts.append(f"{said}: {self.why}" if self.why else said)
        return " | ".join(parts)


def progress(state: State) -> Progress:
    """How far the fleet of this state is."""
    jobs, machines = state.jobs, state.machines
    ready = [one for one in machines.live() if one.heard is not None]
    total, done = len(jobs.by_id), len(jobs.by_id) - jobs.open
    spent = state.spent_usd
    return Progress(
        done=done,
        total=total,
        completed=done - len(jobs.failed),
        failed=len(jobs.failed),
        running=len(jobs.running),
        retrying=len(jobs.retrying),
        workers=len(ready),
        spot=sum(one.market == "spot" for one in ready),
        usd=None if jobs.unpriced and not spent else spent,
        unpriced=jobs.unpriced,
        budget=state.money.limit,
        seconds_left=_seconds_left(state, sum(one.slots for one in ready)),
        mode=state.mode,
        why=state.why,
    )


def _seconds_left(state: State, slots: int) -> tuple[float, float] | None:
    """The open jobs by the mean duration of those that ended; the last of them take one duration more."""
    took = state.jobs.took
    if took.count < _VERDICTS or not slots or not state.jobs.open:
        return None
    off = min(0.9, _SURE * took.spread / (took.mean * math.sqrt(took.count))) if took.mean else 0.0
    least = state.jobs.open * took.mean / slots
    return least * (1 - off), (least + took.mean) * (1 + off)


def _left(least: float, most: float) -> str:
    size, unit = (1.0, "s") if most < 100 else (60.0, "m") if most < 6000 else (3600.0, "h")
    low, high = max(1, round(least / size)), max(1, round(most / size))
    return f"~{low}{unit} left" if low == high else f"~{low}–{high}{unit} left"
