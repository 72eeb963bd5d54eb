"""What tests look at on the host: the processes, control groups, folders and mounts of this test process."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.control_groups import control_groups


def descendants(root: int) -> dict[int, str]:
    """Start times of the living processes below `root`, by their id."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents[int(path.parent.name)] = (int(fields[1]), fields[19])
    found: dict[int, str] = {}
    waiting = [root]
    while waiting:
        above = waiting.pop()
        for pid, (parent, started) in parents.items():
            if parent == above and pid not in found:
                found[pid] = started
                waiting.append(pid)
    return found


def is_running(pid: int, started: str) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and fields[19] == started


def groups_of(pid: int) -> list[Path]:
    """Control groups that a process of ours made."""
    return control_groups(f"ct-sandbox-{pid}-")


def mounts() -> set[str]:
    """Mount points, without those that container engines and other programs come and go with."""
    points = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {point for point in points if "newroot" in point or "/ct-" in point or point.startswith("/tools")}


def folders_of(pid: int) -> list[str]:
    return [str(path) for path in Path(tempfile.gettempdir()).glob(f"ct-*-{pid}-*")]


@dataclass
class Leftovers:
    """What was there before a test, and what the test started."""

    before: dict[int, str]
    family: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def now(cls) -> Leftovers:
        return cls(descendants(os.getpid()))

    def remember_family(self) -> None:
        """Keep in mind what runs now; it must be gone at the end."""
        self.family |= descendants(os.getpid())

    def check(self) -> None:
        deadline = time.monotonic() + 30
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"processes are left: {left}"
        assert groups_of(os.getpid()) == []
        assert folders_of(os.getpid()) == []
        assert mounts() == set()

    def _processes(self) -> list[int]:
        candidates = {**self.family, **descendants(os.getpid())}
        return [pid for pid, at in candidates.items() if self.before.get(pid) != at and is_running(pid, at)]
