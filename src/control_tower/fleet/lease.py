"""One controller a fleet: a lease in the store, judged by each watcher's own time."""

from __future__ import annotations

from collections.abc import Callable

from control_tower.fleet.documents import Lease
from control_tower.fleet.facts import LeaseChanged
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Unreachable
from control_tower.fleet.wire import Unreadable

_RENEW, _DOUBT, _TAKE = 30.0, 60.0, 120.0
"""Seconds: between renewals; after which ours is doubtful; after which another's is dead."""


class LeaseKeeper:
    """Gets and keeps the lease of one fleet."""

    def __init__(self, outside: Outside, owner: str, gone: Callable[[str], bool] | None = None) -> None:
        """Does nothing yet.

        Args:
            outside: The fleet.
            owner: Who this is.
            gone: Whether another owner is surely no more.
        """
        self.held = False
        self.epoch = 0
        self._outside = outside
        # The nonce tells this holder from an earlier one of the same name.
        self._owner = f"{owner} {outside.nonce()}"
        self._etag = ""
        self._turn = 0
        self._renewed = 0.0
        self._gone = gone
        self._released = False

    async def acquire(self, stop: Callable[[], bool]) -> None:
        """Returns when the lease is ours, at once or when nobody renews it; or when it should stop trying.

        It tries once whatever `stop` says.
        """
        outside, clock = self._outside, self._outside.clock
        seen, since, tried = "", clock.now(), False
        while not self.held and not (tried and stop()):
            tried = True
            found = await outside.surely(lambda: outside.store.get(outside.keys.lease))
            if found is None:
                await self._write(None, 1)
                continue
            lease = self._read(found.body)
            if lease.owner == self._owner:
                self._take(found.etag, lease)
            elif self._is_free(lease) or (found.etag == seen and clock.now() - since >= _TAKE):
                await self._write(found.etag, lease.epoch + 1)
            else:
                if found.etag != seen:
                    seen, since = found.etag, clock.now()
                await clock.sleep(5.0)

    async def keep(self, tell: Callable[[LeaseChanged], None]) -> None:
        """Renews the lease, and tells when it is ours and when no longer, until it is released."""
        clock = self._outside.clock
        tell(LeaseChanged(True))
        while True:
            await clock.sleep(_RENEW / 2)
            if self._released:
                return
            if self.held and clock.now() - self._renewed >= _RENEW - 1:
                await self._renew()
            if self.held and clock.now() - self._renewed >= _DOUBT:
                self.held = False
            if not self.held:
                tell(LeaseChanged(False))
                await self.acquire(lambda: self._released)
                if self._released:
                    return
                tell(LeaseChanged(True))

    async def release(self) -> None:
        """Lets the next controller begin at once."""
        self._released = True
        if self.held:
            self.held = False
            body = Lease(owner="", epoch=self.epoch, turn=self._turn + 1).text().encode()
            outside = self._outside
            try:
                await outside.store.replace(outside.keys.lease, body, etag=self._etag)
            except Unreachable:
                # It ends by itself.
                return

    def _read(self, body: bytes) -> Lease:
        """The lease; one that cannot be read is somebody's who is not known, and runs out like any other."""
        try:
            return Lease.read(body)
        except Unreadable:
            # Larger than any that was counted.
            return Lease(owner="unknown ?", epoch=int(self._outside.clock.wall()), turn=0)

    def _is_free(self, lease: Lease) -> bool:
        owner = lease.owner.rpartition(" ")[0]
        return not lease.owner or (self._gone is not None and self._gone(owner))

    async def _write(self, etag: str | None, epoch: int) -> None:
        """Tries once to make the lease ours; the next look says whether it is."""
        outside = self._outside
        lease = Lease(owner=self._owner, epoch=epoch, turn=1)
        body = lease.text().encode()
        try:
            if etag is None:
                new = await outside.store.create(outside.keys.lease, body)
            else:
                new = await outside.store.replace(outside.keys.lease, body, etag=etag)
        except Unreachable:
            return
        if new:
            self._take(new, lease)

    async def _renew(self) -> None:
        outside, began = self._outside, self._outside.clock.now()
        lease = Lease(owner=self._owner, epoch=self.epoch, turn=self._turn + 1)
        body = lease.text().encode()
        try:
            new = await outside.store.replace(outside.keys.lease, body, etag=self._etag)
            if new is None:
                found = await outside.store.get(outside.keys.lease)
                there = self._read(found.body) if found else None
                if found is None or there is None or there.owner != self._owner:
                    self.held = False
                    return
                new, lease = found.etag, there
        except Unreachable:
            return
        self._take(new, lease, began)

    def _take(self, etag: str, lease: Lease, since: float | None = None) -> None:
        self.held, self.epoch, self._turn, self._etag = True, lease.epoch, lease.turn, etag
        # From before the call: others may count from when it took effect.
        self._renewed = self._outside.clock.now() if since is None else since
