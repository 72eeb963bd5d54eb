"""The log that an attempt left: whether it completes its job, and what its samples came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from control_tower.errors import ExpectedError, OperationError
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.plan import Job
from control_tower.fleet.sample_result import model_of, sample_result
from control_tower.logs.archive import EvalArchive, SampleKey, edit_header
from control_tower.logs.json_text import JsonObject, child
from control_tower.logs.masking import mask_log
from control_tower.redactor import Redactor


@dataclass(frozen=True)
class AttemptLog:
    """A log that can be read."""

    path: Path
    header: JsonObject
    summaries: list[JsonObject]
    finished: bool

    @classmethod
    def take(cls, folder: Path, kept: Path, secrets: Redactor) -> AttemptLog | None:
        """Moves an attempt's log to where it is kept; None when there is none that can be read.

        Args:
            folder: Where the attempt wrote it.
            kept: Its new place, on the same disk.
            secrets: Those that are taken out of it.

        Raises:
            OperationError: There is no room to write it without its secrets.
        """
        logs = sorted(folder.glob("*.eval"), key=lambda file: file.stat().st_mtime_ns)
        if not logs:
            return None
        logs[-1].replace(kept)
        try:
            if secrets:
                mask_log(kept, secrets.data)
            with EvalArchive.open(kept) as archive:
                return cls(kept, archive.header(), archive.summaries(), archive.finished)
        except OperationError:
            raise
        except ExpectedError:
            kept.unlink()
            return None

    def completes(self, job: Job) -> bool:
        """Whether this is the job done: a success, with its sample and no other."""
        return not self.problem(job)

    def problem(self, job: Job) -> str:
        """What keeps it from being the job done; empty when nothing does."""
        if (status := self.header.get("status")) != "success":
            return f"has the status {status}"
        if (found := [SampleKey.of(one) for one in self.summaries]) != [SampleKey(job.sample, job.epoch)]:
            return f"has the samples {', '.join(map(str, found)) or 'none'} instead of {job.sample}"
        return ""

    def results(self, job: Job) -> Iterator[SampleResult]:
        """What its samples came to."""
        model = model_of(child(self.header, "eval"))
        for one in self.summaries:
            yield sample_result(one, task=job.task, side=job.attack, model=model)

    def close_as_failed(self, why: str) -> None:
        """Makes a log that was not finished one that failed, so that it can be opened like any other."""
        if not self.finished:
            edit_header(self.path, lambda header: failed(header, why))


def failed(header: JsonObject, why: str) -> JsonObject:
    """A header with the status `error`."""
    error = {"message": why, "traceback": "", "traceback_ansi": ""}
    return {**header, "status": "error", "error": error}
