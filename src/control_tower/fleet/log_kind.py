"""What the controller must know of logs: what their samples came to, and a log for jobs that left none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO

from control_tower.fleet.attempt_log import failed
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.outcomes import Verdict
from control_tower.fleet.plan import Job
from control_tower.fleet.sample_result import model_of, sample_result
from control_tower.logs.archive import HEADER, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, dumps
from control_tower.logs.zip_writer import ZipWriter
from control_tower.storage.source import BytesSource


class EvalLogs:
    """Inspect's `.eval` logs; implements `controller.LogKind`.

    Args:
        jobs: All jobs of the fleet.
        header: The log without samples whose header is the run's, `<fleet>/plan/header.eval`.
    """

    def __init__(self, jobs: Iterable[Job], header: bytes) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._by_sample = {SampleKey(job.sample, job.epoch): job for job in self._jobs.values()}
        self._header = header

    def samples(self, log: bytes) -> Sequence[SampleResult]:
        """What the samples of a log came to; those that belong to no job are left out.

        Raises:
            DamagedArchive: It cannot be read.
        """
        with EvalArchive.open(BytesSource(log, "log")) as archive:
            model, summaries = model_of(child(archive.header(), "eval")), archive.summaries()
        found = [(one, self._by_sample.get(SampleKey.of(one))) for one in summaries]
        return [sample_result(one, task=job.task, side=job.attack, model=model) for one, job in found if job]

    def empty(self, job: str, category: Verdict, summary: str | None) -> bytes:
        """A log without samples, of status error, that says why a job failed.

        Args:
            job: Its id.
            category: Why it failed.
            summary: The same in one line, without secrets.
        """
        with EvalArchive.open(BytesSource(self._header, "header")) as archive:
            header = archive.header()
        header = failed(
            self._of_job(header, self._jobs[job]), f"{category}: {summary}" if summary else category
        )
        start = {name: header[name] for name in ("version", "eval", "plan") if name in header}
        made = BytesIO()
        writer = ZipWriter(made)
        writer.add(START, dumps(start))
        writer.add(SUMMARIES, dumps([]))
        writer.add(HEADER, dumps(header))
        writer.finish()
        return made.getvalue()

    def _of_job(self, header: JsonObject, job: Job) -> JsonObject:
        spec = child(header, "eval")
        dataset = {**child(spec, "dataset"), "samples": 1, "sample_ids": [job.sample]}
        kept = {name: value for name, value in header.items() if name not in ("results", "reductions")}
        return {**kept, "eval": {**spec, "eval_id": job.id, "dataset": dataset}}
