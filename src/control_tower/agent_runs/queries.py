"""What is asked of kept runs, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from control_tower.logs.json_text import JsonObject
from control_tower.storage.blobs import Blob

if TYPE_CHECKING:
    from control_tower.logs.bundles import SampleRange


@dataclass(frozen=True)
class RunQuery:
    """Which runs, in which order, and which part of them."""

    q: str = ""
    """In the filter language; see `filters`."""
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The plain ones by name, each with all its values; names are those of `filters.RUN_PARAMETERS`."""
    sort: str = "-created"
    """`created`, `name`, `cost`, `trajectories` or `metric(<name>)`; behind a `-`, the highest first."""
    cursor: str | None = None
    """`next` of the page before."""
    limit: int = 20
    count: bool = False
    """Whether to say how many there are in all, or were when `answers.Answers` last counted."""
    documents: bool = False
    """Whole headers instead of the rows of a list."""


@dataclass(frozen=True)
class TrajectoryQuery:
    """Which trajectories, the latest first, and which part of them."""

    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By name, each with all its values; names are those of `filters.TRAJECTORY_PARAMETERS`."""
    q: str = ""
    page: int | None = None
    """From 1; None is the first."""
    page_size: int | None = None
    """At most `LARGEST_PAGE`, which it is when None."""
    limit: int | None = None
    """How many at most, over all pages."""
    ids_only: bool = False
    documents: bool = False
    exact: bool = True
    """Whether the total is of this moment; else it may be as old as `answers.Answers` keeps it."""


@dataclass(frozen=True)
class Page:
    """Part of a list."""

    items: list[JsonObject]
    next: str | None
    """Cursor of the next page; None at the end."""
    total: int | None
    """How many there are in all, if that was asked."""


@dataclass(frozen=True)
class TrajectoryPage:
    """Part of a list of trajectories: ids, summaries or documents."""

    items: Sequence[Any]
    total_count: int
    """Of all that match, whatever the limit."""
    page: int
    page_size: int


@dataclass(frozen=True)
class Run:
    """The header of one run."""

    document: JsonObject
    e_tag: str
    """Weak, with quotes; changes with each edit."""


@dataclass(frozen=True)
class Archive:
    """The log of a run."""

    blob: Blob
    sha256: str
    filename: str
    """`<run id>.eval`"""


@dataclass(frozen=True)
class StoredSample:
    """Where a trajectory's sample stands, and what goes with it."""

    blob: Blob
    """To be pinned while it is read."""
    sha256: str
    """Of the log."""
    range: SampleRange
    metadata: JsonObject
    """A `records.runs.TrajectoryMetadata`."""
