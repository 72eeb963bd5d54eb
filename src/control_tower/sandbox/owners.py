"""Names that say which process owns a thing outside of it, so that what the dead left can be removed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def owned_name(prefix: str) -> str:
    """A fresh name `<prefix>-<pid>-<start time>-<random>` of this process."""
    pid = os.getpid()
    return f"{prefix}-{pid}-{_start_time(pid) or 0}-{secrets.token_hex(4)}"


def owner_is_dead(name: str) -> bool:
    """Whether the process that made `name` is gone; False for names of another form."""
    parts = name.rsplit("-", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return False
    pid, started = int(parts[1]), int(parts[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _start_time(pid) not in (started, None)


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None where /proc does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
