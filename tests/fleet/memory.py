"""A store, a queue and secrets in memory, for tests and the simulator."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from control_tower.fleet.ports import Body, Clock, Delivery, Depth, Entry, Head, Object, open_body

POLL = 0.05
"""Seconds between two looks while waiting for a message."""


class MemoryStore:
    """Objects of this process, by folder."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, Object]] = {}

    async def get(self, key: str) -> Object | None:
        return self.folder(key).get(key)

    async def head(self, key: str) -> Head | None:
        found = self.folder(key).get(key)
        return found and Head(found.etag, found.size, found.meta)

    async def create(self, key: str, body: Body, meta: Mapping[str, str] | None = None) -> str | None:
        return None if key in self.folder(key) else self._write(key, body, meta)

    async def replace(
        self, key: str, body: Body, meta: Mapping[str, str] | None = None, *, etag: str
    ) -> str | None:
        found = self.folder(key).get(key)
        return self._write(key, body, meta) if found and found.etag == etag else None

    async def put(self, key: str, body: Body) -> str:
        return self._write(key, body, None)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return [
            Entry(key, one.etag, one.size)
            for key, one in sorted(self.folder(prefix).items())
            if key.startswith(prefix) and key > after
        ]

    async def delete(self, key: str) -> None:
        self.folder(key).pop(key, None)

    def folder(self, key: str) -> dict[str, Object]:
        return self.folders.setdefault(key.rpartition("/")[0], {})

    def _write(self, key: str, body: Body, meta: Mapping[str, str] | None) -> str:
        if isinstance(body, Path):
            with open_body(body) as file:
                body = file.read()
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        self.folder(key)[key] = Object(etag, len(body), dict(meta or {}), body)
        return etag


class MemoryQueue:
    """Messages of this process, given in random order."""

    batch = 10

    def __init__(self, clock: Clock, *, visibility: float = 60.0, random: Random | None = None) -> None:
        self.visibility = visibility
        self._clock = clock
        self._random = random or Random()
        self._visible: list[str] = []
        self._hidden: dict[str, tuple[float, str]] = {}

    async def send(self, bodies: Sequence[str]) -> Sequence[int]:
        self._visible += bodies
        return ()

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        end = self._clock.now() + wait
        while not (found := self.take(limit)) and self._clock.now() < end:
            await self._clock.sleep(POLL)
        return found

    async def ack(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            self._hidden.pop(receipt, None)

    async def depth(self) -> Depth:
        self._reveal()
        return Depth(len(self._visible), len(self._hidden))

    def take(self, limit: int) -> list[Delivery]:
        """What `receive` gives without waiting."""
        self._reveal()
        found: list[Delivery] = []
        while self._visible and len(found) < limit:
            chosen = self._random.randrange(len(self._visible))
            self._visible[chosen], self._visible[-1] = self._visible[-1], self._visible[chosen]
            found.append(Delivery(self._visible.pop(), f"{self._random.getrandbits(64):016x}"))
            self._hidden[found[-1].receipt] = (self._clock.now() + self.visibility, found[-1].body)
        return found

    @property
    def visible(self) -> bool:
        """Whether there is anything to take."""
        self._reveal()
        return bool(self._visible)

    def body(self, receipt: str) -> str | None:
        """The message that a receipt stands for, while it is hidden."""
        return self._hidden.get(receipt, (0.0, None))[1]

    def _reveal(self) -> None:
        # All are hidden for equally long, so the first to be hidden is the first to be seen again.
        while self._hidden and (first := next(iter(self._hidden.items())))[1][0] <= self._clock.now():
            del self._hidden[first[0]]
            self._visible.append(first[1][1])


class MemorySecrets:
    """Secrets of this process."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}

    async def publish(self, fleet: str, values: Mapping[str, str]) -> None:
        self._values[fleet] = dict(values)

    async def fetch(self, fleet: str) -> Mapping[str, str]:
        return dict(self._values.get(fleet, {}))

    async def revoke(self, fleet: str) -> None:
        self._values.pop(fleet, None)
