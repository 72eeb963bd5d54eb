"""Runs attempts in processes of their own, forked from one that has everything imported and planned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_tower.evals.secret_names import log_redactor
from control_tower.fleet.attempt import Attempt, Limits, Masks
from control_tower.fleet.attempt_files import Setup
from control_tower.fleet.documents import SampleResult, one_line
from control_tower.fleet.failures import fingerprint
from control_tower.fleet.job_parent import JobParent, environment_of
from control_tower.fleet.job_processes import GROUP
from control_tower.fleet.outcomes import Category
from control_tower.fleet.plan import FleetFile, Job
from control_tower.fleet.ports import Clock
from control_tower.fleet.worker import Finish
from control_tower.redactor import Redactor
from control_tower.sandbox import cgroups
from control_tower.sandbox.owners import remove_tree

_UNLIMITED = 12 * 3600.0
"""Seconds that an attempt may take whose samples have no limit of time."""

_MARGIN = 1800.0
"""Seconds that an attempt may take beside its sample's limit: to start, to score, to end."""

_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class RunnerSpec:
    """What a worker's attempts need."""

    file: FleetFile
    jobs: Sequence[Job]
    scratch: Path
    """Folder of this worker for what attempts write; it is made, and nothing is left in it."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables that jobs get and whose values nothing shows; they travel by a socket only."""
    rates: Path | None = None
    """The driver's table of prices as a file; nothing has a price where the fleet's pricing is off."""
    sample_idle: float = 1800.0
    """Seconds without a sign of a sample and without work of a processor after which an attempt hangs."""
    grace: float = 10.0
    """Seconds that an attempt which is ended has to write its log."""

    @property
    def limits(self) -> Limits:
        """How long attempts may take."""
        return Limits(_deadline(self.file), self.sample_idle, self.grace)

    @property
    def prices(self) -> dict[str, str]:
        """The variables that say which prices count."""
        if not self.file.pricing:
            return {"CONTROL_TOWER_PRICING": "off"}
        if self.rates is None:
            return {}
        return {"CONTROL_TOWER_PRICING": "file", "CONTROL_TOWER_MODEL_RATES": str(self.rates.resolve())}


class ProcessRunner:
    """Runs attempts; implements `worker.Runner`.

    Args:
        spec: What attempts need.
        clock: By which deadlines pass.
    """

    def __init__(self, spec: RunnerSpec, clock: Clock) -> None:
        self.ready_s: float | None = None
        """Seconds that importing and planning took; None until that is done."""
        self._spec = spec
        self._clock = clock
        self._masks = Masks(Redactor(spec.secrets.values()).text, log_redactor(spec.secrets))
        self._scratch = spec.scratch.resolve()
        self._jobs = {job.id: job for job in spec.jobs}
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._parent: JobParent | None = None
        self._starting = asyncio.Lock()
        self._deaths = 0
        self._closed = False
        self._closing = clock.bell()
        self._unable: str | None = None
        self._refused = 0

    async def start(self) -> None:
        """Begins to import and plan; attempts wait for it."""
        async with self._starting:
            if self._parent is None:
                await self._start()

    async def close(self) -> None:
        """Ends all processes at once and removes what attempts left."""
        self._closed = True
        # Some may be forgotten meanwhile.
        attempts = tuple(self._attempts.values())
        for attempt in attempts:
            attempt.kill()
        self._closing.ring()
        if self._parent:
            await self._parent.close()
        async with self._starting:
            # Whoever was starting one has ended it by now.
            pass
        for attempt in attempts:
            await attempt.over.wait()
        remove_tree(self._scratch)

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        """Runs an attempt to its end."""
        if job not in self._jobs:
            return self._impossible(f"this fleet has no job {job}")
        spec = self._spec
        one = Attempt(
            self._jobs[job],
            attempt,
            self._scratch,
            spec.limits,
            self._clock,
            self._masks,
            tell,
        )
        self._attempts[job, attempt] = one
        try:
            parent = await self._ready()
            if self._unable is not None:
                return self._impossible(self._unable)
            return await one.run(parent)
        finally:
            one.over.set()

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        """Ends an attempt; `run` returns soon, with this category."""
        if one := self._attempts.get((job, attempt)):
            one.end(category)

    def forget(self, job: str, attempt: int) -> None:
        """Removes the log of an attempt that ended; whoever called `run` has stored it."""
        if one := self._attempts.pop((job, attempt), None):
            self._refused += one.refused
            one.remove()

    def spent(self, job: str, attempt: int) -> float | None:
        """USD that the tokens of an attempt cost so far; None when some have no price."""
        one = self._attempts.get((job, attempt))
        return one.usd if one else None

    def start_s(self, job: str, attempt: int) -> float | None:
        """Real seconds from asking for an attempt to the first sign of its sample, until `forget`."""
        one = self._attempts.get((job, attempt))
        return one.start_s if one else None

    def backoff(self) -> int:
        """How often models' services refused since this was last asked."""
        refused = self._refused
        for one in self._attempts.values():
            refused, one.refused = refused + one.refused, 0
        self._refused = 0
        return refused

    async def _ready(self) -> JobParent | None:
        """Who forks jobs, begun anew when it died; None when it died meanwhile, or none is to be."""
        async with self._starting:
            died = self._parent is not None and self._parent.dead
            if died and self._unable is None:
                await self._closing.wait(min(2.0 ** min(self._deaths, 6) - 1, _LONGEST_PAUSE))
            if self._closed or self._unable is not None:
                return None
            if self._parent is None or died:
                await self._start()
            parent = self._parent
            assert parent is not None
            report = await parent.ready
        if report is None:
            self._deaths += 1
            return None
        self._deaths = 0
        if report.kind == "unable":
            self._unable = report.why
        else:
            self.ready_s = report.seconds
        return parent

    async def _start(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(cgroups.sweep, GROUP)
        spec, file = self._spec, self._spec.file
        setup = Setup(
            folder=file.folder, config=file.config, command=file.command, secrets=dict(spec.secrets)
        )
        environment = environment_of(spec.secrets, spec.prices)
        self._parent = await JobParent.start(setup, environment, self._scratch / "parent.log")
        if self._closed:
            await self._parent.close()

    def _impossible(self, why: str) -> Finish:
        told = one_line(self._masks.text(why))
        return Finish(
            "failed", None, "prerequisite", told, fingerprint("prerequisite", "planning", None, told), usd=0.0
        )


def _deadline(file: FleetFile) -> float:
    """Seconds that an attempt may take: what the user said, else what the samples' own limits allow."""
    if file.settings.attempt_timeout is not None:
        return file.settings.attempt_timeout
    limits: Mapping[str, Any] = file.config.get("eval_args") or {}
    if not (limit := limits.get("time_limit")):
        return _UNLIMITED
    return (1 + int(limits.get("retry_on_error") or 0)) * float(limit) + _MARGIN
