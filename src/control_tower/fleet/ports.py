"""What a fleet needs of the world outside: objects, messages, machines and time.

Any call of a store, a queue or a provider may raise `Unreachable`. The caller then does not know whether it
was carried out: it asks again, or reads back what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Literal, Protocol

from control_tower.errors import OperationError

Body = bytes | Path
"""What an object is made of: bytes, or a file that stays as it is until the call returns."""

Market = Literal["spot", "on-demand", "local"]
"""How a machine is paid for; `spot` machines are taken back."""


class Unreachable(OperationError):
    """A call failed; whether it was carried out is unknown."""


class BodyLost(Exception):
    """The file to make an object of is not there: nothing was written, and trying again is in vain."""


def open_body(body: Path) -> BufferedReader:
    """Opens the file that an object is to be made of.

    Raises:
        BodyLost: It is not there.
    """
    try:
        return body.open("rb")
    except FileNotFoundError as error:
        raise BodyLost(str(body)) from error


@dataclass(frozen=True)
class Entry:
    """An object in a list."""

    key: str
    etag: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Head:
    """What is known of an object without its bytes."""

    etag: str
    size: int
    """Bytes."""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Object(Head):
    """An object with its bytes."""

    body: bytes = b""


class Store(Protocol):
    """Objects under keys such as `fleet/claims/job.1`.

    Per key, calls take effect one after another; what was written is in the next list. Objects appear whole
    or not at all. An etag belongs to one content: after another write the object has another etag, unless
    both wrote the same bytes.
    """

    async def get(self, key: str) -> Object | None:
        """An object, None when there is none."""
        ...

    async def head(self, key: str) -> Head | None:
        """An object without its bytes, None when there is none."""
        ...

    async def create(self, key: str, body: Body, meta: Mapping[str, str] | None = None) -> str | None:
        """Writes an object that must not be there yet: of all who try, one succeeds.

        Args:
            key: Of the object.
            body: Its bytes.
            meta: Short ASCII texts by lower-case names, 2 KB in all.

        Returns:
            The etag; None when there is an object already, which stays.

        Raises:
            BodyLost: There is no object, and the file to make it of is not there.
        """
        ...

    async def replace(
        self, key: str, body: Body, meta: Mapping[str, str] | None = None, *, etag: str
    ) -> str | None:
        """Writes an object in place of exactly the one that has this etag.

        Returns:
            The new etag; None when the object is another by now, or gone; nothing is changed then.
        """
        ...

    async def put(self, key: str, body: Body) -> str:
        """Writes an object whatever is there, and returns its etag; for keys that have one writer."""
        ...

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """The objects whose keys begin with `prefix` and have no further `/`, in the order of their keys.

        Args:
            prefix: Begin of the keys; `fleet/claims/` lists what is in that folder.
            after: Only keys that come after this one.
        """
        ...

    async def delete(self, key: str) -> None:
        """Removes an object; one that is not there is no error."""
        ...


@dataclass(frozen=True)
class Delivery:
    """A message as it was received."""

    body: str
    receipt: str
    """To acknowledge this delivery by; the next delivery of the message has another."""


@dataclass(frozen=True)
class Depth:
    """About how many messages there are."""

    visible: int
    hidden: int
    """Received and neither acknowledged nor visible again."""


class Queue(Protocol):
    """Messages in no order, each delivered at least once.

    A message that was received is hidden for the queue's visibility time and comes again after it, unless
    it was acknowledged. Any message may come twice.
    """

    @property
    def batch(self) -> int:
        """How many messages it takes or gives at once, at most."""
        ...

    async def send(self, bodies: Sequence[str]) -> Sequence[int]:
        """Adds at most `batch` messages; returns the positions of those that were not taken."""
        ...

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Takes visible messages.

        Args:
            limit: How many at most, up to `batch`.
            wait: For how many seconds to wait for the first.
        """
        ...

    async def ack(self, receipts: Sequence[str]) -> None:
        """Removes messages for good. A receipt that is too old, or used, removes nothing and is no error."""
        ...

    async def depth(self) -> Depth:
        """How many messages there are, not exactly and not at one moment."""
        ...


@dataclass(frozen=True)
class Launch:
    """Machines to be started."""

    fleet: str
    token: str
    """The same request again, with the same token, starts nothing new."""
    count: int
    market: Market


@dataclass(frozen=True)
class Launched:
    """What became of a request."""

    ids: Sequence[str]
    missing: int
    """How many of the requested machines there are not."""
    reason: str | None = None
    """Why they are missing."""


@dataclass(frozen=True)
class Instance:
    """A machine as the provider lists it."""

    id: str
    market: Market
    gone: bool
    """It ended or is ending; it never comes back."""
    price: float | None = None
    """USD an hour; None when it is not known."""


class Provider(Protocol):
    """Machines, each of which runs one worker."""

    async def launch(self, request: Launch) -> Launched:
        """Starts machines; fewer than asked for is no error."""
        ...

    async def list(self, fleet: str) -> Sequence[Instance]:
        """The machines of a fleet. New ones may be missing and ended ones shown for a while."""
        ...

    async def terminate(self, ids: Sequence[str]) -> None:
        """Ends machines for good; ids that ended before, or are unknown, are no error."""
        ...


class Secrets(Protocol):
    """Values that workers need and nobody else may see: never in arguments, messages, events or logs."""

    async def publish(self, fleet: str, values: Mapping[str, str]) -> None:
        """Makes values ready for the workers of a fleet, in place of any before."""
        ...

    async def fetch(self, fleet: str) -> Mapping[str, str]:
        """The values, none when nothing was published or it was revoked."""
        ...

    async def revoke(self, fleet: str) -> None:
        """Removes them; nothing is there, no error."""
        ...


class Bell(Protocol):
    """Wakes one who sleeps."""

    def ring(self) -> None:
        """Ends the present wait, or the next when nobody waits."""
        ...

    async def wait(self, seconds: float) -> None:
        """Returns when the bell rang, at the latest after these seconds."""
        ...


class Clock(Protocol):
    """Time on this machine; never compared with another machine's."""

    def now(self) -> float:
        """Seconds since some moment, never going back."""
        ...

    def wall(self) -> float:
        """Unix seconds, only to be shown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after these seconds."""
        ...

    def bell(self) -> Bell:
        """A new bell."""
        ...
