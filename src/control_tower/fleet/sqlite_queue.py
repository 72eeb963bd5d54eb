"""A queue in an SQLite file, for processes of one machine."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

from control_tower.fleet.ports import Clock, Delivery, Depth, Unreachable
from control_tower.storage.sqlite_file import open_shared

P = ParamSpec("P")
T = TypeVar("T")

_WAIT = 30.0
"""Seconds for which calls wait for others."""

_POLL = 0.1
"""Seconds between two looks while waiting for a message."""

_TABLE = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, body TEXT NOT NULL, visible_at REAL NOT NULL, receipt TEXT
);
CREATE INDEX IF NOT EXISTS visible ON messages (queue, visible_at);
CREATE UNIQUE INDEX IF NOT EXISTS receipts ON messages (receipt);
"""


class SqliteQueue:
    """One named queue of a file that holds several."""

    batch = 100

    def __init__(self, file: Path, name: str, clock: Clock, *, visibility: float = 60.0) -> None:
        """Opens a queue; the file is made when something is asked of it.

        Args:
            file: Shared by all who use the queue; its folder exists.
            name: Of the queue.
            clock: Waits between looks; its `wall` is the one clock of all processes of the machine.
            visibility: Seconds for which a received message is hidden.
        """
        self._file = file
        self._name = name
        self._clock = clock
        self._visibility = visibility
        self._waits = True
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: int | None = None

    async def send(self, bodies: Sequence[str]) -> Sequence[int]:
        await self._run(self._send, bodies)
        return ()

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        end = self._clock.now() + wait
        while not (found := await self._run(self._take, limit)) and self._waits and self._clock.now() < end:
            await self._clock.sleep(_POLL)
        return found

    def stop_waiting(self) -> None:
        """From now on `receive` gives what there is at once, also where it waits just now."""
        self._waits = False

    async def ack(self, receipts: Sequence[str]) -> None:
        await self._run(self._drop, receipts)

    async def depth(self) -> Depth:
        return await self._run(self._count)

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection = None

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def alone() -> T:
            with self._lock:
                return call(*args, **kwargs)

        try:
            return await asyncio.to_thread(alone)
        except sqlite3.Error as error:
            raise Unreachable(f"{self._file}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode() != self._opened:
            # It was removed: whoever opens it now has another file.
            self._connection.close()
            self._connection = None
        if self._connection is None:
            connection = open_shared(self._file, _WAIT)
            # A loss of power may take the last messages, which are hints, and each would cost an fsync.
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(_TABLE)
            self._connection, self._opened = connection, self._inode()
        return self._connection

    def _inode(self) -> int | None:
        try:
            return self._file.stat().st_ino
        except FileNotFoundError:
            return None

    def _send(self, bodies: Sequence[str]) -> None:
        rows = [(self._name, body) for body in bodies]
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO messages (queue, body, visible_at) VALUES (?, ?, 0)", rows)

    def _take(self, limit: int) -> list[Delivery]:
        connection = self._open()
        now = self._clock.wall()
        ready = "SELECT id, body FROM messages WHERE queue = ? AND visible_at <= ? LIMIT ?"
        # A look without a lock first: many processes wait on a queue that is mostly empty.
        if not connection.execute(ready, (self._name, now, 1)).fetchone():
            return []
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute(ready, (self._name, now, limit)).fetchall()
            taken = [(now + self._visibility, secrets.token_hex(8), number) for number, _ in found]
            connection.executemany("UPDATE messages SET visible_at = ?, receipt = ? WHERE id = ?", taken)
        return [Delivery(body, receipt) for (_, body), (_, receipt, _) in zip(found, taken, strict=True)]

    def _drop(self, receipts: Sequence[str]) -> None:
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM messages WHERE receipt = ?", [(one,) for one in receipts])

    def _count(self) -> Depth:
        if not self._file.exists():
            # Whoever only looks makes nothing.
            return Depth(0, 0)
        visible, total = (
            self._open()
            .execute(
                "SELECT coalesce(sum(visible_at <= ?), 0), count(*) FROM messages WHERE queue = ?",
                (self._clock.wall(), self._name),
            )
            .fetchone()
        )
        return Depth(visible, total - visible)
