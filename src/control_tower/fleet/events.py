"""`events.jsonl`: what happened to a fleet, one strict JSON object a line, never a line twice or torn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

from control_tower.fleet.wire import dumps

LONGEST = 256 * 1024
"""Bytes of a line at most."""

_CUT_TO = (4000, 500, 50)
"""Characters that texts of too long a line are cut to, one after the other until it fits."""


class LineFile(Protocol):
    """A file that grows at its end."""

    def read(self) -> bytes:
        """All of it."""
        ...

    def cut(self, size: int) -> None:
        """Keeps only the first bytes."""
        ...

    def append(self, data: bytes) -> None:
        """Writes at the end, in one piece."""
        ...

    def sync(self) -> None:
        """Returns when all that was written outlasts a loss of power."""
        ...


class DiskFile:
    """A file on the disk; it and its folder are made when missing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def read(self) -> bytes:
        return self._path.read_bytes()

    def cut(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        if written < len(data):
            # A full disk took a part: the line is taken back, so that the next does not stick to it.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(28, "there is no room left for the event", str(self._path))

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._descriptor)


@dataclass
class Told:
    """What a log says already, so that it is not said again."""

    jobs: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Status and attempt of the verdict on each job."""
    results: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])
    """The attempt whose result was told, by job, sample and epoch."""
    attempts: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Those whose end was told, by job."""
    lost: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Why, of those that ended without an account."""
    events: int = 0
    """Number of the last event."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Takes note of a line."""
        kind, job = event.get("type"), event.get("job_id")
        self.events = max(self.events, event.get("seq") or 0)
        if kind == "job_done" or (kind == "correction" and "status" in event and "sample" not in event):
            self.jobs[cast(str, job)] = (event["status"], event["attempt"])
        elif kind == "attempt_done":
            self.attempts.add((cast(str, job), event["attempt"]))
            if event.get("outcome") == "lost":
                self.lost[cast(str, job), event["attempt"]] = event["failure_category"]
        elif kind in ("result", "correction"):
            self.results[cast(str, job), str(event["sample"]), event["epoch"]] = event["attempt"]


class EventLog:
    """Writes the events of one fleet; one process does at a time."""

    def __init__(self, file: LineFile, wall: Callable[[], float]) -> None:
        """Reads what is there; a line that was never finished is removed, and that is said in the log.

        Args:
            file: The log.
            wall: Unix time.
        """
        self._file = file
        self._wall = wall
        self._waiting = False
        self.told = Told()
        data = file.read()
        whole = data.rfind(b"\n") + 1
        unreadable = 0
        for line in data[:whole].splitlines():
            try:
                self.told.add(json.loads(line))
            except (ValueError, KeyError, AttributeError):
                unreadable += 1
        if whole < len(data):
            file.cut(whole)
            self.emit("log_repaired", {"cut_bytes": len(data) - whole, "unreadable": unreadable})

    def emit(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Adds an event, as `write` does."""
        self.write([(kind, fields)])

    def write(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Adds events.

        Args:
            events: The `type` of each, and anything; numbers that are not finite become null, too long texts
                are cut.

        Raises:
            OSError: They could not be written; nothing of them is in the log.
        """
        stamp = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")
        stamp = stamp.replace("+00:00", "Z")
        made = [
            {"type": kind, "ts": stamp, "seq": number, "v": 1, **fields}
            for number, (kind, fields) in enumerate(events, self.told.events + 1)
        ]
        self._file.append(b"".join(map(_line, made)))
        for event in made:
            self.told.add(event)
        self._waiting = True

    def sync(self) -> None:
        """Returns when all events outlast a loss of power."""
        if self._waiting:
            self._file.sync()
            self._waiting = False


def _line(event: dict[str, Any]) -> bytes:
    line = (dumps(event) + "\n").encode()
    for longest in _CUT_TO:
        if len(line) <= LONGEST:
            return line
        line = (dumps({**_cut(event, longest), "cut": True}) + "\n").encode()
    if len(line) > LONGEST:
        # Thousands of entries: the line says at least what it was about.
        plain = {name: value for name, value in event.items() if not isinstance(value, dict | list | tuple)}
        line = (dumps({**_cut(plain, _CUT_TO[-1]), "cut": True}) + "\n").encode()
    return line


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else value[: longest - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(item, longest) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_cut(item, longest) for item in cast("list[Any]", value)]
    return value
