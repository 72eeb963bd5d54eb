"""Names that say which process owns a thing outside of it, so that what the dead left can be removed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def owned_name(prefix: str) -> str:
    """A fresh name `<prefix>-<pid>-<start time>-<random>` of this process."""
    pid = os.getpid()
    return f"{prefix}-{pid}-{start_time(pid) or 0}-{secrets.token_hex(4)}"


def owner_is_dead(name: str) -> bool:
    """Whether the process that made `name` is gone; False for names of another form."""
    parts = name.rsplit("-", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return False
    return not is_running(int(parts[1]), int(parts[2]))


def is_running(pid: int, started: int) -> bool:
    """Whether a process still runs; one that ended and waits for its parent does not.

    Args:
        pid: Its number, which another process may have by now.
        started: Its `start_time`; 0 where that was not known.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    fields = _status(pid)
    if fields is None:
        return not Path("/proc/self/stat").exists()
    return fields[0] not in "ZX" and started in (0, int(fields[19]))


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None where /proc does not tell."""
    fields = _status(pid)
    return None if fields is None else int(fields[19])


def kill_all(variable: str, belongs: Callable[[str], bool]) -> int:
    """End the processes whose environment at their start has `variable` with a value that `belongs`.

    Returns:
        How many there were; none where /proc does not show environments.
    """
    start, ended = f"{variable}=".encode(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for setting in (entry / "environ").read_bytes().split(b"\0"):
                if setting.startswith(start) and belongs(os.fsdecode(setting[len(start) :])):
                    os.kill(int(entry.name), signal.SIGKILL)
                    ended += 1
    return ended


def remove_tree(folder: Path) -> None:
    """Remove a folder whatever modes its content has."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for parent, folders, _files in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
