"""A job: plays one sample at one epoch in a process of its own, and says by files how that goes."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from inspect_ai.hooks import (
    Hooks,
    ModelRetry,
    ModelUsageData,
    SampleEnd,
    SampleEvent,
    SampleInit,
    SampleScoring,
    SampleStart,
    hooks,
)
from pydantic_core import to_jsonable_python

from control_tower.errors import Interrupted
from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.fleet.attempt_files import AttemptFolder, Ended, Fault, Phase, Request, Sign
from control_tower.fleet.failures import fault_of
from control_tower.fleet.sample_result import model_of, sample_result
from control_tower.fleet.wire import Wire
from control_tower.inspect_private import watch_errors
from control_tower.models.cost import cost_of_usage

_TOUCH = 1.0
"""Seconds between two signs of a sample that goes on."""


class _Job:
    """The job of this process, and what it says."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.files = AttemptFolder(Path(request.folder))
        self.phase: Phase = "start"
        self.fault: Fault | None = None
        self.model = "none"
        self._touched = 0.0

    def failed(self, error: BaseException) -> None:
        """Remembers an exception; the last one counts."""
        self.fault = fault_of(error, self.phase)

    def reached(self, phase: Phase) -> None:
        self.phase = phase
        self.say(self.files.signs, Sign(phase=phase, at=time.monotonic()))

    def touch(self) -> None:
        """Shows that the sample goes on."""
        if (now := time.monotonic()) - self._touched > _TOUCH:
            self._touched = now
            os.utime(self.files.signs)

    def say(self, file: Path, line: Wire) -> None:
        """Adds a line in one write, so that whoever reads along sees whole lines."""
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.text().encode() + b"\n")
        finally:
            os.close(descriptor)


_job: _Job | None = None


@hooks(name="fleet_sample_streamer", description="Tells a fleet's worker of samples as they end.")  # pyright: ignore[reportUntypedClassDecorator]
class FleetSampleStreamer(Hooks):
    """Writes what happens to a sample beside its log: local files only, and what fails ends no sample."""

    def enabled(self) -> bool:
        return _job is not None

    async def on_sample_init(self, data: SampleInit) -> None:
        _the_job().reached("sandbox")

    async def on_sample_start(self, data: SampleStart) -> None:
        _the_job().reached("sample")

    async def on_sample_event(self, data: SampleEvent) -> None:
        _the_job().touch()

    async def on_sample_scoring(self, data: SampleScoring) -> None:
        _the_job().reached("scoring")

    async def on_model_usage(self, data: ModelUsageData) -> None:
        cost = cost_of_usage(data.usage.model_dump())
        job = _the_job()
        usd = None if cost.incomplete else cost.usd or 0.0
        job.say(job.files.signs, Sign(used=True, usd=usd))

    async def on_model_retry(self, data: ModelRetry) -> None:
        job = _the_job()
        job.say(job.files.signs, Sign(refused=data.status_code or 0))

    async def on_sample_end(self, data: SampleEnd) -> None:
        job = _the_job()
        summary = to_jsonable_python(data.sample.summary(), exclude_none=True)
        request = job.request
        result = sample_result(summary, task=request.task, side=request.side, model=job.model)
        job.say(job.files.samples, result)


def _the_job() -> _Job:
    assert _job is not None
    return _job


def run_job(plan: RunPlan, request: Request) -> int:
    """Plays a job in this process, which ends after it.

    Args:
        plan: The whole run.
        request: One of its sample-epochs.

    Returns:
        The exit code: 0 when there is an account of the job's end.
    """
    global _job
    job = _job = _Job(request)
    _settle(job.files, request.groups)
    watch_errors(job.failed)
    log: Path | None = None
    try:
        one = plan.only(request.sample)
        job.model = model_of({"model_roles": _names(one), "model": "none/none"})
        # What a viewer shows of running samples is looked at by nobody, and stays behind when this is killed.
        one.config = one.config.model_copy(
            update={"eval_args": {"log_realtime": False, **one.config.eval_args, "max_samples": 1}}
        )
        run = run_local(one, job.files.logs, only=[(request.sample, request.epoch)])
        log = run.results.log
    except Interrupted:
        pass
    except BaseException as error:
        job.failed(error)
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        job.say(job.files.ended, Ended(log=log.name if log else None, fault=job.fault))
    return 0


def _names(plan: RunPlan) -> dict[str, dict[str, str]]:
    return {role: {"model": spec.full_name} for role, spec in plan.config.model_roles.items()}


def _settle(files: AttemptFolder, groups: Iterable[str]) -> None:
    """Makes this process one that ends alone, with its own output, temporary folder and chance."""
    os.setsid()
    for file in groups:
        with suppress(OSError):
            Path(file).write_text(str(os.getpid()))
    with Path(os.devnull).open("rb") as nothing, files.output.open("ab") as output:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    # A core would hold the secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Inspect writes the log of a run that is interrupted.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    os.environ["TMPDIR"] = str(files.temporary)
    tempfile.tempdir = None
    if numpy := sys.modules.get("numpy"):
        # Python's own random numbers are made anew after a fork, these are not.
        numpy.random.seed()
