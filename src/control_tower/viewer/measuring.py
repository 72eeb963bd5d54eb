"""Runs measured and compared by their logs, in threads; what was read is kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from fastapi import Request

from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.queries import Archive
from control_tower.errors import StateError, ValidationError, did_you_mean
from control_tower.logs import compare_document
from control_tower.logs.archive import EvalArchive
from control_tower.logs.compare import compare_archives
from control_tower.logs.numbers import NumbersLog
from control_tower.logs.zip_reader import DamagedArchive
from control_tower.metrics.document import document
from control_tower.metrics.evaluation import evaluate
from control_tower.metrics.report import Parameters, Report
from control_tower.metrics.samples import SampleNumbers, SourceInfo
from control_tower.storage.blobs import Blobs
from control_tower.viewer.auth.actor import site_of
from control_tower.viewer.content import Named
from control_tower.viewer.pool import Pool

_LOGS_KEPT = 8

Numbers = tuple[SourceInfo, tuple[SampleNumbers, ...]]


class Measuring:
    """Measures logs of a site."""

    def __init__(self, blobs: Blobs, pool: Pool) -> None:
        self._blobs = blobs
        self._pool = pool
        self._kept: OrderedDict[str, Numbers] = OrderedDict()
        self._alone = asyncio.Lock()

    async def curve(
        self, archive: Archive, monitor: str | None, budgets: Sequence[float], bootstrap: int
    ) -> dict[str, Any]:
        """The report of a run.

        Args:
            archive: Its log.
            monitor: By whose scores audits are chosen; None for each monitor.
            budgets: Shares, ascending.
            bootstrap: Draws for intervals.

        Raises:
            BadRequest: The log has no such monitor, or is not in today's format.
        """
        # Whoever waits for a log to be read must not hold a thread that others need.
        async with self._alone:
            source, samples = await self._pool.run(self._numbers, archive)
        return await self._pool.run(_curve, source, samples, monitor, tuple(budgets), bootstrap)

    async def comparison(self, a: Archive, b: Archive) -> dict[str, Any]:
        """Two runs side by side.

        Raises:
            BadRequest: They are not comparable.
        """
        return await self._pool.run(self._comparison, a, b)

    def _numbers(self, archive: Archive) -> Numbers:
        found = self._kept.get(archive.filename)
        if found is None:
            name = archive.filename.removesuffix(".eval")
            with _refusing(), NumbersLog(Path(archive.filename), name, source=self._source(archive)) as log:
                samples = tuple(log.samples())
                found = log.info(samples, archive.sha256), samples
        self._kept[archive.filename] = found
        self._kept.move_to_end(archive.filename)
        if len(self._kept) > _LOGS_KEPT:
            self._kept.popitem(last=False)
        return found

    def _comparison(self, a: Archive, b: Archive) -> dict[str, Any]:
        with (
            _refusing(),
            EvalArchive.open(self._source(a)) as one,
            EvalArchive.open(self._source(b)) as other,
        ):
            return compare_document.document(compare_archives((a.filename, one), (b.filename, other)))

    def _source(self, archive: Archive) -> Named:
        return Named(self._blobs.source(archive.blob), archive.filename)


def _curve(
    source: SourceInfo,
    samples: tuple[SampleNumbers, ...],
    monitor: str | None,
    budgets: tuple[float, ...],
    bootstrap: int,
) -> dict[str, Any]:
    known = sorted({name for sample in samples for name in sample.monitors})
    if monitor is not None and monitor not in known:
        raise BadRequest(f"monitor: the run has no scores of {monitor!r}{did_you_mean(monitor, known)}")
    chosen = [monitor] if monitor else [None] if source.live_audits else known or [None]
    parameters = Parameters(budgets=budgets, level=None, bootstrap=bootstrap, seed=0, cluster="combination")
    with _refusing():
        found = tuple(evaluate([source], samples, name, parameters) for name in chosen)
    return document(Report(parameters, found, {}))


@contextmanager
def _refusing() -> Generator[None]:
    """What cannot be measured is a bad request; a log that is damaged is not the asker's fault."""
    try:
        yield
    except DamagedArchive as error:
        raise StateError(str(error)) from None
    except ValidationError as error:
        raise BadRequest(str(error)) from None


def measuring_of(request: Request) -> Measuring:
    """The measuring of the application that answers."""
    state = request.app.state
    if not hasattr(state, "measuring"):
        state.measuring = Measuring(site_of(request).blobs, state.pool)
    return cast(Measuring, state.measuring)
