"""What the decision core is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from control_tower.fleet.documents import Ending, Mode, Reopen, SampleResult, SealEntry
from control_tower.fleet.messages import Message
from control_tower.fleet.outcomes import Verdict
from control_tower.fleet.ports import Instance, Market


@dataclass(frozen=True)
class Decided:
    """There is a verdict on a job."""

    job: str
    status: Literal["completed", "failed"]
    attempt: int
    worker: str
    etag: str
    category: str | None = None
    """Why it failed; a fleet of a newer version may know other reasons."""
    usd: float | None = None
    """What its tokens cost; None when something has no price."""


@dataclass(frozen=True)
class Swept:
    """What a look at the whole store found that was not known before."""

    claims: Sequence[tuple[str, int]]
    endings: Sequence[Ending]
    verdicts: Sequence[Decided]
    visible: int
    """Offers that wait for any worker, as they were before the look."""
    visible_safe: int = 0
    """Offers that wait for workers whose machines are not taken back."""


@dataclass(frozen=True)
class Ended:
    """The document of an attempt's end was read."""

    ending: Ending


@dataclass(frozen=True)
class Read:
    """What the samples of a verdict came to."""

    job: str
    attempt: int
    samples: Sequence[SampleResult]


@dataclass(frozen=True)
class Heard:
    """A worker's message."""

    message: Message


@dataclass(frozen=True)
class Polled:
    """All messages that waited were received: who was not heard of by then said nothing."""


@dataclass(frozen=True)
class Listed:
    """The machines of the fleet, as the provider lists them."""

    instances: Sequence[Instance]


@dataclass(frozen=True)
class Started:
    """What became of a launch."""

    number: int
    ids: Sequence[str]
    missing: int
    reason: str | None
    market: Market


@dataclass(frozen=True)
class LeaseChanged:
    """Whether this controller is the one."""

    held: bool


@dataclass(frozen=True)
class Interrupted:
    """The user wants to stop: 1 let what runs finish, 2 end it now, 3 leave at once."""

    times: int


@dataclass(frozen=True)
class Changed:
    """The user set something anew; None leaves it."""

    mode: Literal["run"] | None = None
    """It goes on, where it is paused."""
    budget: float | None = None
    """USD."""
    hard_budget: float | None = None
    """USD."""
    max_workers: int | None = None


@dataclass(frozen=True)
class Retry:
    """The user wants jobs to be tried anew: `failed`, `unscored`, or categories of failed ones."""

    number: int
    """Of the `Asked`."""
    what: tuple[str, ...]


@dataclass(frozen=True)
class Reopening:
    """These jobs are tried anew, none where nothing was found; the document is written."""

    jobs: Mapping[str, Reopen]


@dataclass(frozen=True)
class Sealed:
    """A seal is written that says what this controller wanted."""

    number: int


@dataclass(frozen=True)
class Tick:
    """Time went on."""


Event = (
    Decided
    | Swept
    | Ended
    | Read
    | Heard
    | Polled
    | Listed
    | Started
    | LeaseChanged
    | Interrupted
    | Changed
    | Retry
    | Reopening
    | Sealed
    | Tick
)


@dataclass(frozen=True)
class Give:
    """Offer an attempt."""

    job: str
    attempt: int
    safe: bool
    alone: bool
    avoid: str | None = None
    """The worker that leaves it to others for a while."""
    reopened: Reopen | None = None
    """The verdict that it is to be tried in spite of."""


@dataclass(frozen=True)
class Look:
    """Look whether there is a verdict, and tell it."""

    job: str


@dataclass(frozen=True)
class ReadEnding:
    """Read how an attempt ended, and tell it."""

    job: str
    attempt: int


@dataclass(frozen=True)
class ReadSamples:
    """Read what the samples of a verdict came to, and tell it."""

    job: str
    attempt: int


@dataclass(frozen=True)
class WriteFailed:
    """Write the verdict that a job failed, unless there is one that counts; tell what is there."""

    job: str
    attempt: int
    category: Verdict
    summary: str | None
    reopened: Reopen | None = None
    """The failed verdict whose place it takes."""


@dataclass(frozen=True)
class Replace:
    """Put the log of a success that came late in place of exactly this verdict; tell what is there."""

    job: str
    attempt: int
    worker: str
    etag: str


@dataclass(frozen=True)
class Start:
    """Start machines and tell what became of it."""

    number: int
    """Of the launch; asked again with the same number, nothing new is started."""
    count: int
    market: Market


@dataclass(frozen=True)
class End:
    """End machines for good."""

    ids: Sequence[str]


@dataclass(frozen=True)
class SetControl:
    """Tell all workers."""

    mode: Mode
    why: str
    slots_cap: int | None
    launches: int
    must_live: bool
    leave: tuple[str, ...] = ()
    """Workers that take no more jobs."""
    halt: bool = False
    """Whether what runs is ended, because the hard budget is spent."""


@dataclass(frozen=True)
class Emit:
    """Write an event into the log."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class WriteSeal:
    """Freeze the outcome under this number, or the next that is free."""

    number: int
    jobs: dict[str, SealEntry]


@dataclass(frozen=True)
class WriteReopening:
    """Write down which jobs are tried anew, and tell it."""

    asked: int
    seal: int
    """Number of the last seal."""
    jobs: dict[str, Reopen]
    unscored: dict[str, Reopen]
    """Of these, those that have no score."""


@dataclass(frozen=True)
class Exit:
    """Leave, with this code."""

    code: int


Action = (
    Give
    | Look
    | ReadEnding
    | ReadSamples
    | WriteFailed
    | Replace
    | Start
    | End
    | SetControl
    | Emit
    | WriteSeal
    | WriteReopening
    | Exit
)
