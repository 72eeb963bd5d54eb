"""Workers as processes of this machine, which outlive the controller that started them."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from control_tower.config import is_secret_name
from control_tower.fleet.job_processes import GROUP
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.plan import FleetFile
from control_tower.fleet.ports import Clock, Instance, Launch, Launched, Unreachable
from control_tower.fleet.wire import Wire
from control_tower.sandbox import cgroups
from control_tower.sandbox.owners import is_running, kill_all, remove_tree, start_time

GRACE = 10.0
"""Seconds that a worker has to end; after half of them what it runs is ended."""

# -P: the working folder is the user's, and no place for modules.
SUPERVISOR = (sys.executable, "-P", "-m", "control_tower.fleet.supervisor")

_LOOK = 0.1
_DYING = 20.0
_ROUNDS = 50
_KILLED = 1.0
"""Seconds in which processes that were killed are gone."""

_NOT_FOR_WORKERS = "CONTROL_TOWER_API_"


class Record(Wire):
    """A worker, `<place.workers>/<worker>.json`; without a pid it was about to be started."""

    v: int = 1
    worker: str
    pid: int | None = None
    started: int = 0
    """As `owners.start_time` tells it."""
    ended: bool = False
    """It is gone, and nothing of it is left but its log."""


def worker_log(place: LocalPlace, worker: str) -> Path:
    """What a worker says about itself."""
    return place.workers / worker / "worker.log"


def worker_scratch(place: LocalPlace, worker: str) -> Path:
    """Where a worker and all it starts write what nobody needs after its end."""
    return place.workers / worker / "scratch"


class LocalProvider:
    """Machines that are processes; implements `ports.Provider`.

    A worker has a session and a folder for temporary files of its own. All that it starts has this folder in
    its environment, which is how it is found when the worker is gone.

    Args:
        place: Where the fleet keeps its workers.
        file: The fleet.
        clock: By which a process has time to end.
        program: The command of a worker, without the names that tell it which.
    """

    def __init__(
        self, place: LocalPlace, file: FleetFile, clock: Clock, program: Sequence[str] = SUPERVISOR
    ) -> None:
        self._place = _resolved(place)
        self._file = file
        self._clock = clock
        self._program = program
        self._children: list[subprocess.Popen[bytes]] = []

    async def launch(self, request: Launch) -> Launched:
        """Starts workers; the same token again starts only those that were not."""
        return await asyncio.to_thread(self._launch, request)

    async def list(self, fleet: str) -> Sequence[Instance]:
        """The workers of a fleet; of one that is `gone` nothing is left."""
        records = await self._looked(replace(self._place, fleet=fleet))
        return [Instance(one.worker, "local", gone=one.ended, price=0.0) for one in records]

    async def terminate(self, ids: Sequence[str]) -> None:
        """Asks workers to end, then ends them with all they started; returns when they are gone."""
        left = [one for one in await self._looked(self._place) if one.worker in ids]
        for number, patience in ((signal.SIGTERM, GRACE / 2), (signal.SIGTERM, GRACE / 2)):
            left = await self._end(left, number, patience)
        await self._end(left, signal.SIGKILL, _DYING)
        await self._looked(self._place)

    async def _end(self, records: Sequence[Record], number: signal.Signals, patience: float) -> list[Record]:
        """Sends a signal and waits; returns those that are still there."""
        left = [one for one in records if _signal(one, number)]
        end = self._clock.now() + patience
        while left and self._clock.now() < end:
            await self._clock.sleep(_LOOK)
            left = [one for one in left if _runs(one)]
        return left

    def _launch(self, request: Launch) -> Launched:
        number = request.token.rpartition("-")[2]
        digest = hashlib.sha256(request.token.encode()).hexdigest()[:4]
        ids: list[str] = []
        try:
            with _locked(self._place):
                for position in range(request.count):
                    worker = f"local-{number}-{position}-{digest}"
                    self._start(worker)
                    ids.append(worker)
        except OSError as error:
            reason = f"cannot start a worker in {self._file.folder}: {error.strerror}"
            return Launched(tuple(ids), request.count - len(ids), reason)
        return Launched(tuple(ids), 0)

    def _start(self, worker: str) -> None:
        """Starts a worker that was never started; the lock is held."""
        file = self._place.workers / f"{worker}.json"
        if not file.exists():
            _write(self._place, Record(worker=worker))
        elif _settled(self._place, Record.read(file.read_bytes())).pid is not None:
            return
        scratch = worker_scratch(self._place, worker)
        remove_tree(scratch)
        scratch.mkdir(parents=True, mode=0o700)
        with worker_log(self._place, worker).open("ab") as log:
            process = subprocess.Popen(
                [*self._program, *_names(self._place, worker)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._file.folder,
                env=self._environment(scratch),
                start_new_session=True,
            )
        self._children.append(process)
        _write(self._place, _started(worker, process.pid))

    def _environment(self, scratch: Path) -> dict[str, str]:
        """Ours without secrets, under whatever name."""
        secret = {os.environ[name] for name in self._file.secrets if name in os.environ}
        kept = {
            name: value
            for name, value in os.environ.items()
            if not is_secret_name(name)
            and not name.startswith(_NOT_FOR_WORKERS)
            and name not in self._file.secrets
            and value not in secret
        }
        return kept | {"TMPDIR": str(scratch)}

    async def _looked(self, place: LocalPlace) -> list[Record]:
        try:
            return await asyncio.to_thread(self._look, place)
        except OSError as error:
            raise Unreachable(f"{error.filename or place.workers}: {error.strerror}") from error

    def _look(self, place: LocalPlace) -> list[Record]:
        """The workers that were started; what the dead left is removed before they are called ended."""
        if not place.workers.exists():
            return []
        with _locked(place):
            self._children = [child for child in self._children if child.poll() is None]
            records = [_settled(place, record) for record in _records(place)]
            for record in records:
                # Whoever wanted to start it was killed before.
                if record.pid is None and worker_scratch(place, record.worker).exists():
                    _clean(place, record)
            found = [record for record in records if record.pid is not None]
            dead = [record for record in found if not record.ended and not _runs(record)]
            for record in dead:
                _clean(place, record)
                _write(place, record.model_copy(update={"ended": True}))
            if dead:
                cgroups.sweep(GROUP, _KILLED)
                cgroups.sweep()
        gone = {record.worker for record in dead}
        return [one.model_copy(update={"ended": one.ended or one.worker in gone}) for one in found]


@contextmanager
def _locked(place: LocalPlace) -> Generator[None]:
    """Keeps out other providers of the fleet.

    A process that is being started holds the lock, too, until it has its command line: so whoever has the
    lock finds all that were started, even by one who was killed before he could write it down.
    """
    place.workers.mkdir(parents=True, exist_ok=True)
    with (place.workers / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolved(place: LocalPlace) -> LocalPlace:
    return replace(place, root=place.root.resolve())


def _names(place: LocalPlace, worker: str) -> list[str]:
    return ["--root", str(place.root), "--fleet", place.fleet, "--worker", worker]


def _records(place: LocalPlace) -> Iterator[Record]:
    for file in sorted(place.workers.glob("[!.]*.json")):
        yield Record.read(file.read_bytes())


def _settled(place: LocalPlace, record: Record) -> Record:
    """With the pid, if it was started and whoever did that was killed before he wrote it down."""
    if record.pid is None and (pid := _find(_names(place, record.worker))) is not None:
        record = _started(record.worker, pid)
        _write(place, record)
    return record


def _started(worker: str, pid: int) -> Record:
    return Record(worker=worker, pid=pid, started=start_time(pid) or 0)


def _find(names: list[str]) -> int | None:
    """The process whose command line ends so."""
    end = "".join(f"{name}\0" for name in names).encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes().endswith(end):
                return int(file.parent.name)
    return None


def _write(place: LocalPlace, record: Record) -> None:
    file = place.workers / f"{record.worker}.json"
    made = file.with_name(f".{file.name}")
    try:
        made.write_text(record.text())
        made.replace(file)
    finally:
        made.unlink(missing_ok=True)


def _runs(record: Record) -> bool:
    return record.pid is not None and is_running(record.pid, record.started)


def _signal(record: Record, number: signal.Signals) -> bool:
    """Whether it was still there to be signalled."""
    if record.pid is None or not _runs(record):
        return False
    with suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(record.pid, number)
        else:
            os.kill(record.pid, number)
    return True


def _clean(place: LocalPlace, record: Record) -> None:
    """Ends what a dead worker started and removes its files."""
    scratch = worker_scratch(place, record.worker)
    for _ in range(_ROUNDS):
        # What is being killed may start another just now.
        if not kill_all("TMPDIR", lambda folder: Path(folder).is_relative_to(scratch)):
            break
        time.sleep(0.02)
    remove_tree(scratch)
