"""Memory and process limits of one machine by control groups, where this user may make them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from control_tower.sandbox.owners import owned_name, owner_is_dead

_CONTROLLERS = ("memory", "pids")
_SANDBOX = "ct-sandbox"
_OOM_COUNTERS = ("memory.events.local", "memory.oom_control")


@dataclass
class ControlGroup:
    """Groups that hold a machine's commands: one for all limits (version 2), or one for each (version 1)."""

    folders: list[Path] = field(default_factory=list[Path])

    @classmethod
    def create(cls, memory: int | None, processes: int | None, prefix: str = _SANDBOX) -> ControlGroup | None:
        """New groups with these limits; None where this user cannot make them.

        Args:
            memory: Bytes that its processes may have together; None is no limit.
            processes: How many they may be; None is no limit.
            prefix: How the groups' names begin.
        """
        name = owned_name(prefix)
        group = cls()
        try:
            for parent, settings in _places(memory, processes):
                folder = parent / name
                folder.mkdir()
                group.folders.append(folder)
                for file, value, required in settings:
                    if value is not None and (required or (folder / file).exists()):
                        (folder / file).write_text(str(value))
        except OSError:
            group.remove()
            return None
        return group if group.folders else None

    def open_members(self) -> tuple[int, ...]:
        """Open files through which a process joins the groups; the caller closes them."""
        return tuple(os.open(folder / "cgroup.procs", os.O_WRONLY) for folder in self.folders)

    def kill(self) -> None:
        """End all processes in the groups and in those that were made in them."""
        for folder in self.folders:
            for group in _tree(folder):
                _kill(group)

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the groups themselves because memory ran out."""
        counters = (folder / file for folder in self.folders for file in _OOM_COUNTERS)
        return any(
            line.startswith("oom_kill ") and line != "oom_kill 0"
            for file in counters
            for line in _lines(file)
        )

    def remove(self) -> None:
        """Remove the groups; their processes must be ending."""
        for folder in self.folders:
            _remove(folder, 2.0)


def sweep(prefix: str = _SANDBOX, patience: float = 0.0) -> None:
    """Remove groups that a dead process of this program left behind, and end what still runs in them.

    Args:
        prefix: How the groups' names begin.
        patience: Seconds in which processes of such a group may come to their end.
    """
    for parent, _settings in _places(None, None):
        for folder in parent.glob(f"{prefix}-*"):
            if owner_is_dead(folder.name):
                ControlGroup([folder]).kill()
                _remove(folder, patience)


def _tree(folder: Path) -> Iterator[Path]:
    """A group, then those that were made in it; others may remove them meanwhile."""
    yield folder
    try:
        made = list(folder.glob("ct-*"))
    except FileNotFoundError:
        return
    for inner in made:
        yield from _tree(inner)


def _kill(folder: Path) -> None:
    try:
        (folder / "cgroup.kill").write_text("1")
        return
    except OSError:
        pass
    # Before Linux 5.14 they are ended one by one, until none was started meanwhile.
    for _ in range(10):
        if not (members := _lines(folder / "cgroup.procs")):
            return
        for member in members:
            with suppress(OSError):
                os.kill(int(member), signal.SIGKILL)
        time.sleep(0.005)


def _remove(folder: Path, patience: float) -> None:
    for group in reversed(list(_tree(folder))):
        deadline = time.monotonic() + patience
        while True:
            try:
                group.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(0.005)
                    continue
            break


def _places(
    memory: int | None, processes: int | None
) -> Iterator[tuple[Path, list[tuple[str, int | None, bool]]]]:
    """Parent folders and the settings (file, value, required) of the groups to make there."""
    places = _parents()
    if "unified" in places:
        yield (
            places["unified"],
            [
                ("memory.max", memory, True),
                ("memory.swap.max", None if memory is None else 0, False),
                ("pids.max", processes, True),
            ],
        )
    elif all(name in places for name in _CONTROLLERS):
        yield (
            places["memory"],
            [("memory.limit_in_bytes", memory, True), ("memory.memsw.limit_in_bytes", memory, False)],
        )
        yield places["pids"], [("pids.max", processes, True)]


@cache
def _parents() -> dict[str, Path]:
    """Writable folders in which groups can be made, by controller; `unified` for version 2."""
    mounts = _mounts()
    found: dict[str, Path] = {}
    for line in _lines("/proc/self/cgroup"):
        _number, controllers, own = line.split(":", 2)
        for name in controllers.split(",") if controllers else ["unified"]:
            if name in mounts and name in (*_CONTROLLERS, "unified"):
                found[name] = _own_folder(mounts[name], own)
    usable = {name: path for name, path in found.items() if os.access(path, os.W_OK)}
    if "unified" in usable and not _has_controllers(usable["unified"]):
        top = mounts["unified"][1]
        if os.access(top, os.W_OK) and _has_controllers(top):
            usable["unified"] = top
        else:
            del usable["unified"]
    return usable


def _own_folder(mount: tuple[str, Path], own: str) -> Path:
    root, point = mount
    below = own[len(root) :] if root != "/" and own.startswith(root) else own
    folder = point / below.lstrip("/")
    return folder if folder.is_dir() else point


def _has_controllers(folder: Path) -> bool:
    """Whether groups made in `folder` have our controllers; they are switched on where that is possible."""
    file = folder / "cgroup.subtree_control"
    try:
        if not set(_CONTROLLERS) <= set(file.read_text().split()):
            file.write_text("+memory +pids")
        return set(_CONTROLLERS) <= set(file.read_text().split())
    except OSError:
        return False


def _mounts() -> dict[str, tuple[str, Path]]:
    """Control group mounts: root within the hierarchy, and mount point, by controller."""
    mounts: dict[str, tuple[str, Path]] = {}
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _source, options = after.split(" ", 2)
        root, point = before.split(" ")[3:5]
        if kind == "cgroup2":
            mounts["unified"] = (root, Path(point))
        elif kind == "cgroup":
            for name in options.split(","):
                mounts[name] = (root, Path(point))
    return mounts


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
