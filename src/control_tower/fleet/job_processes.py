"""All processes of one attempt: their control group where this user may make one, else what can be found."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from control_tower.sandbox.cgroups import ControlGroup
from control_tower.sandbox.owners import kill_all

GROUP = "ct-job"
"""How the names of the control groups of jobs begin."""


class JobProcesses:
    """The processes that an attempt started.

    Args:
        folder: Where the attempt writes; its temporary folder is in there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._group = ControlGroup.create(None, None, GROUP)
        self._pid = 0
        self._runs = False

    @property
    def members(self) -> tuple[str, ...]:
        """Files into which the job writes its number to join the group."""
        return tuple(str(folder / "cgroup.procs") for folder in self._group.folders) if self._group else ()

    def began(self, pid: int) -> None:
        """The job runs, as the leader of a session of its own."""
        self._pid, self._runs = pid, True

    def ended(self) -> None:
        """The job ended; what it started may still run."""
        self._runs = False

    def ask_to_end(self) -> None:
        """Has the job write its log and end."""
        if self._runs:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the job and all it started, wherever these moved."""
        if self._group:
            self._group.kill()
        # Its number stays taken while its session has members, and may be another's afterwards.
        for pid in {*([self._pid] if self._runs else []), *(_session(self._pid) if self._pid else [])}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Commands of the `process` sandbox have sessions of their own.
        kill_all("TMPDIR", lambda value: Path(value).is_relative_to(self._folder))

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel ended one of them because memory ran out; False where that is not counted."""
        return bool(self._group and self._group.out_of_memory())

    def cpu_seconds(self) -> float:
        """Processor time that those which run have used so far, with that of their children that ended."""
        import psutil  # pyright: ignore[reportMissingModuleSource]

        used = 0.0
        with suppress(psutil.Error):
            job = psutil.Process(self._pid)
            for process in (job, *job.children(recursive=True)):
                with suppress(psutil.Error):
                    used += sum(process.cpu_times()[:4])
        return used

    def remove(self) -> None:
        """Removes the group, when `kill` was called."""
        if self._group:
            self._group.remove()


def _session(leader: int) -> list[int]:
    """The processes of a session; none where /proc does not tell."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(entry.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(entry.parent.name))
    return found
