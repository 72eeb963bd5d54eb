"""Messages: offers to workers, and what workers tell the controller. They are hints; the store decides."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from control_tower.fleet.documents import Outcome, Reopen, SampleResult
from control_tower.fleet.outcomes import Category
from control_tower.fleet.wire import Unreadable, Wire


class Offer(Wire):
    """An attempt that a worker may claim."""

    v: int = 1
    f: str
    """The fleet."""
    j: str
    """The job."""
    n: int
    """The attempt."""
    alone: bool = False
    """Nothing else may run beside it."""
    avoid: str | None = None
    """The worker that leaves it to others for a while."""
    reopened: Reopen | None = None
    """The verdict that it is to be tried in spite of."""


class _FromWorker(Wire):
    v: int = 1
    fleet: str
    worker: str
    boot: str
    """Of this start of the worker."""
    seq: int
    """Grows with each message of a boot."""


class Hello(_FromWorker):
    """A worker is ready."""

    type: Literal["hello"] = "hello"
    slots: int
    bootstrap_s: float = 0.0
    """How long its machine has been up."""
    zone: str | None = None
    phases: dict[str, float] = Field(default_factory=dict[str, float])
    """Seconds of each step of the start."""


class Hold(Wire):
    """An attempt that a worker holds."""

    job: str
    n: int
    phase: Literal["waiting", "running", "storing"]
    usd: float | None = None
    """What its tokens cost so far, where that is known."""


class Heartbeat(_FromWorker):
    """A worker lives, and holds these attempts."""

    type: Literal["heartbeat"] = "heartbeat"
    holds: tuple[Hold, ...]
    slots: int
    backoff: int = 0
    """How often a model's service refused since the last heartbeat."""


class SampleDone(_FromWorker):
    """A sample of a running attempt ended."""

    type: Literal["sample_done"] = "sample_done"
    job: str
    n: int
    result: SampleResult


class AttemptDone(_FromWorker):
    """An attempt ended, and what it left is stored."""

    type: Literal["attempt_done"] = "attempt_done"
    job: str
    n: int
    outcome: Outcome
    category: Category | None = None
    samples: tuple[SampleResult, ...] = ()
    duration_s: float = 0.0


class Notice(_FromWorker):
    """Something the controller should know at once."""

    type: Literal["notice"] = "notice"
    kind: Literal["spot", "rebalance", "drain", "docker", "disk", "bad_offer"]


class Bye(_FromWorker):
    """A worker leaves."""

    type: Literal["bye"] = "bye"
    reason: str


class BootFailed(_FromWorker):
    """A machine did not become a worker."""

    type: Literal["boot_failed"] = "boot_failed"
    step: str
    detail: str = ""


Message = Hello | Heartbeat | SampleDone | AttemptDone | Notice | Bye | BootFailed

_MESSAGE: TypeAdapter[Any] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def read_message(text: str) -> Message:
    """What a worker says.

    Raises:
        Unreadable: It is no message, or of a type that is not known.
    """
    try:
        return _MESSAGE.validate_json(text)
    except ValidationError as error:
        raise Unreadable(f"message: {error.errors()[0]['msg']}") from None
