"""What a worker, the pre-imported parent of its jobs and the jobs tell each other: lines and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from control_tower.fleet.outcomes import Category
from control_tower.fleet.wire import Wire

Phase = Literal["start", "sandbox", "sample", "scoring"]
"""How far a job had come: before its sample, while the sandbox starts, while it plays, while it is scored."""


class Setup(Wire):
    """What the parent of all jobs is told first."""

    folder: str
    """The working folder."""
    config: dict[str, Any]
    """The RunConfig."""
    command: str | None
    secrets: dict[str, str] = Field(repr=False)
    """Variables that no process shall show to others."""


class Request(Wire):
    """A job to be played."""

    key: str
    """`<job>.<attempt>`."""
    sample: str
    epoch: int
    task: str
    side: bool
    """Whether the sample has a side task."""
    folder: str
    """Where everything goes that it writes; it is there and empty."""
    groups: tuple[str, ...] = ()
    """Files into which its process writes its number, to belong to a control group."""


class Report(Wire):
    """What the parent of all jobs says."""

    kind: Literal["ready", "unable", "started", "ended"]
    key: str = ""
    """Of a request."""
    why: str = ""
    """The reason for which no job can be played."""
    seconds: float = 0.0
    """How long it took to be ready."""
    forks: bool = True
    """Whether jobs are forked; false where something started a thread, so that they begin from nothing."""
    pid: int = 0
    code: int = 0
    """Exit code of a job that ended, the negative number of the signal that ended it."""


class Fault(Wire):
    """An exception that ended a sample or a job, as its process saw it."""

    category: Category
    phase: Phase
    kind: str
    """Name of its class."""
    message: str
    frame: str | None = None
    """The deepest place of ours, or of a setting, that it came through: `file.py:function`."""
    retry_after_s: float | None = None
    """Seconds that the service which refused asked to wait."""


class Ended(Wire):
    """`ended.json`: how a job came to its end; it is missing when its process was ended."""

    log: str | None
    """The log's file name in `log/`."""
    fault: Fault | None = None
    """The last exception that ended a sample, or the job."""


class Sign(Wire):
    """A line of `signs.jsonl`: something that happened while the sample was played."""

    phase: Phase | None = None
    """The sample came so far."""
    at: float = 0.0
    """When it did, by the machine's monotonic clock."""
    used: bool = False
    """A model was asked."""
    usd: float | None = None
    """What that cost; None when it has no price."""
    refused: int | None = None
    """A model's service refused, and is asked again: the HTTP status, 0 where there was none."""


class AttemptFolder:
    """The files of one attempt.

    Args:
        folder: Of this attempt alone.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.temporary = folder / "tmp"
        self.logs = folder / "log"
        self.output = folder / "output.txt"
        self.samples = folder / "samples.jsonl"
        self.signs = folder / "signs.jsonl"
        """Changed whenever the sample does something."""
        self.ended = folder / "ended.json"
