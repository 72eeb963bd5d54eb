"""A fleet of this machine put together, and driven from a terminal to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from control_tower.errors import OperationError, StateError
from control_tower.fleet.controller import NEAR, Controller
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.documents import Lease, SampleResult
from control_tower.fleet.events import DiskFile, EventLog
from control_tower.fleet.header import WholeHeader
from control_tower.fleet.local_outside import local_outside
from control_tower.fleet.local_provider import LocalProvider
from control_tower.fleet.log_kind import EvalLogs
from control_tower.fleet.outcomes import Verdict
from control_tower.fleet.outside import Outside
from control_tower.fleet.place import LocalPlace, local_place
from control_tower.fleet.plan import FleetPlan, Job, read_fleet
from control_tower.fleet.ports import Provider, Secrets
from control_tower.fleet.progress import Progress
from control_tower.fleet.reconcile import Policy
from control_tower.fleet.secrets_file import FileSecrets
from control_tower.fleet.standing import read_standing
from control_tower.fleet.system_clock import SystemClock
from control_tower.fleet.tasks import Tasks
from control_tower.sandbox.owners import owned_name, owner_is_dead

_EACH = 0.25
"""Seconds between two looks at the progress."""

_TERM = 60.0
"""Seconds that what runs has to finish after SIGTERM."""

_MEANINGS = (
    "interrupted: nothing new begins, {running} running finish; Ctrl-C again ends them",
    "interrupted twice: what runs is ended within 20 seconds; Ctrl-C again leaves at once",
    "interrupted three times: leaving at once",
)


@dataclass(frozen=True)
class Opened:
    """A fleet and everything it stands on; nothing runs yet."""

    plan: FleetPlan
    place: LocalPlace
    outside: Outside
    tasks: Tasks
    provider: Provider
    secrets: Secrets

    @property
    def id(self) -> str:
        """Of the fleet."""
        return self.plan.file.fleet

    @property
    def events(self) -> Path:
        """Its `events.jsonl`."""
        return events_path(self.plan)


class Watcher(Protocol):
    """Shows a person how a fleet is doing."""

    def progress(self, progress: Progress) -> None:
        """How far it is; called often."""
        ...

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """What was just written into the log of events."""
        ...

    def say(self, text: str) -> None:
        """Something that concerns this command."""
        ...


@dataclass(frozen=True)
class Driven:
    """How driving ended."""

    code: int
    """0 when all jobs completed or the fleet was left running, 1 when some failed, 130 before the end."""
    end: Progress
    """How far it came, and why it went no further."""
    detached: bool = False
    left: tuple[str, ...] = ()
    """Workers that still live."""


def events_path(plan: FleetPlan) -> Path:
    """Where the events of a fleet are."""
    return Path(plan.file.log_dir) / "fleet" / plan.file.fleet / "events.jsonl"


def open_fleet(plan: FleetPlan) -> Opened:
    """Puts a fleet of this machine together."""
    fleet, clock, tasks = plan.file.fleet, SystemClock(), Tasks()
    place = local_place(fleet)
    outside, _ = local_outside(place, clock, tasks.spawn)
    provider = LocalProvider(place, plan.file, clock)
    return Opened(plan, place, outside, tasks, provider, FileSecrets(place))


async def open_local(fleet: str) -> Opened:
    """Opens a fleet of this machine by its id.

    Raises:
        StateError: There is none of this id.
    """
    return open_fleet(await read_fleet(DirectoryStore(local_place(fleet).root), fleet))


async def living_controller(opened: Opened) -> str | None:
    """Who drives the fleet now, as `pid 1234`; None when nobody does."""
    found = await opened.outside.store.get(opened.outside.keys.lease)
    owner = Lease.read(found.body).owner.partition(" ")[0] if found else ""
    if not owner or owner_is_dead(owner):
        return None
    parts = owner.rsplit("-", 3)
    return f"pid {parts[1]}" if len(parts) == 4 else owner


async def finished(opened: Opened) -> bool:
    """Whether a fleet is sealed for good, its end was told, and none of its machines lives.

    Its secrets are gone then, too: whoever drove it may have been killed before he removed them.
    """
    store, keys = opened.outside.store, opened.outside.keys
    standing = await read_standing(store, keys, lambda _: None)
    if not standing.sealed or standing.retries:
        return False
    found = await store.get(keys.lease)
    told = found is not None and not Lease.read(found.body).owner
    if not told or not all(one.gone for one in await opened.provider.list(opened.id)):
        return False
    await opened.secrets.revoke(opened.id)
    return True


def secret_values(plan: FleetPlan) -> dict[str, str]:
    """The values that workers need, from this process's environment.

    Raises:
        StateError: One is not set.
    """
    names = plan.file.secrets
    if missing := [name for name in names if not os.environ.get(name)]:
        raise StateError(f"fleet {plan.file.fleet} needs {', '.join(missing)}, which is not set")
    return {name: os.environ[name] for name in names}


async def drive(
    opened: Opened,
    watcher: Watcher,
    header: WholeHeader,
    policy: Policy | None = None,
    *,
    detach: bool = False,
    ending: Literal[0, 1, 2] = 0,
) -> Driven:
    """Is the controller of a fleet until it ends, the user ends it, or the terminal closes.

    Ctrl-C lets what runs finish, a second one ends it, a third leaves at once; SIGTERM is the first, and
    the second a minute later; SIGHUP leaves the fleet running.

    Args:
        opened: The fleet; what it has done already is not done again.
        watcher: Is told how it goes.
        header: Of its whole run.
        policy: What the user wants now; as it was planned when None.
        detach: Leave when workers run and all jobs are offered.
        ending: As if Ctrl-C were given so often at the start; no worker is started, so none needs secrets.

    Raises:
        StateError: A variable that workers need is not set, or somebody else drives the fleet.
        OperationError: There is no room for what it needs to begin.
    """
    return await opened.tasks.run(_drive(opened, watcher, header, policy, detach, ending))


async def _drive(
    opened: Opened,
    watcher: Watcher,
    header: WholeHeader,
    policy: Policy | None,
    detach: bool,
    ending: Literal[0, 1, 2],
) -> Driven:
    outside = opened.outside
    if other := await living_controller(opened):
        raise StateError(
            f"{other} drives fleet {opened.id} already; to watch it: ct fleet attach {opened.id}"
        )
    values = {} if ending else secret_values(opened.plan)
    try:
        opened.place.machine.mkdir(parents=True, exist_ok=True)
        if not ending:
            await opened.secrets.publish(opened.id, values)
        events = _ShownLog(DiskFile(opened.events), outside.clock.wall, watcher)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise OperationError(f"{where}{error.strerror}, so fleet {opened.id} cannot go on") from error
    controller = Controller(
        [job.id for job in opened.plan.jobs],
        policy or opened.plan.file.settings.policy(),
        outside,
        opened.provider,
        events,
        _Logs(opened.plan.jobs, header),
        owned_name("ct"),
        owner_is_dead,
        NEAR,
    )
    signals = _Signals(controller, watcher, outside, ending)
    if ending:
        controller.interrupt(ending)
    outside.spawn(_show(controller, watcher))
    with signals.handled():
        if detach:
            signals.detach()
        code = await controller.run()
    end = controller.progress()
    watcher.progress(end)
    if signals.detached and end.done < end.total:
        return Driven(0, end, detached=True)
    await opened.secrets.revoke(opened.id)
    living = [one.id for one in await opened.provider.list(opened.id) if not one.gone]
    return Driven(code, end, left=tuple(living))


async def _show(controller: Controller, watcher: Watcher) -> None:
    while True:
        await asyncio.sleep(_EACH)
        watcher.progress(controller.progress())


class _Signals:
    """What signals mean to a controller."""

    def __init__(
        self, controller: Controller, watcher: Watcher, outside: Outside, interrupted: int = 0
    ) -> None:
        self.detached = False
        self._controller = controller
        self._watcher = watcher
        self._outside = outside
        self._times = interrupted

    @contextmanager
    def handled(self) -> Generator[None]:
        """Has the running loop hand signals over."""
        loop = asyncio.get_running_loop()
        meanings = {
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._terminate,
            signal.SIGHUP: self.detach,
        }
        for number, meaning in meanings.items():
            loop.add_signal_handler(number, meaning)
        try:
            yield
        finally:
            for number in meanings:
                loop.remove_signal_handler(number)

    def detach(self) -> None:
        """Has the controller leave its fleet running."""
        self.detached = True
        self._controller.detach()

    def _interrupt(self) -> None:
        self._times += 1
        running = self._controller.progress().running
        self._watcher.say(_MEANINGS[min(self._times, 3) - 1].format(running=running))
        self._controller.interrupt(self._times)

    def _terminate(self) -> None:
        if not self._times:
            self._interrupt()
            self._outside.spawn(self._stop_later())

    async def _stop_later(self) -> None:
        await self._outside.clock.sleep(_TERM)
        if self._times < 2:
            self._interrupt()


class _Logs:
    """Logs of a fleet whose header may still be in the making."""

    def __init__(self, jobs: Sequence[Job], header: WholeHeader) -> None:
        self._jobs = jobs
        self._header = header
        self._logs = EvalLogs(jobs, b"")

    def samples(self, log: bytes) -> Sequence[SampleResult]:
        return self._logs.samples(log)

    def empty(self, job: str, category: Verdict, summary: str | None) -> bytes:
        return EvalLogs(self._jobs, self._header.body()).empty(job, category, summary)


class _ShownLog(EventLog):
    """A log of events whose lines are shown as they are written."""

    def __init__(self, file: DiskFile, wall: Callable[[], float], watcher: Watcher) -> None:
        self._watcher = watcher
        super().__init__(file, wall)

    def write(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        super().write(events)
        for kind, fields in events:
            self._watcher.event(kind, fields)
