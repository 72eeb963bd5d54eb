"""Files that tasks put into the agent's machine before it starts, checked before anything runs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path

from control_tower.environments.task import MainTask, SideTask
from control_tower.errors import ValidationError


def sample_files(tasks: Sequence[MainTask | SideTask]) -> dict[str, str]:
    """All files of a sample's tasks: place in the agent's machine to absolute host path.

    Folders stay folders.

    Raises:
        ValidationError: a source that is missing, empty, remote or outside the task's folder; a destination
            in another service; destinations of two tasks that collide.
    """
    files: dict[str, str] = {}
    owners: dict[str, str] = {}
    for task in tasks:
        for destination, source in (task.files or {}).items():
            place = _destination(task, destination)
            for other, owner in owners.items():
                if place == other or _is_below(place, other) or _is_below(other, place):
                    raise ValidationError(
                        f"files of task '{task.id}': '{destination}' collides with '{other}' of '{owner}'"
                    )
            owners[place] = task.id
            files[place] = str(_source(task, source))
    return files


def _destination(task: MainTask | SideTask, destination: str) -> str:
    if ":" in destination:
        raise ValidationError(
            f"files of task '{task.id}': '{destination}' names a service; files go to the agent's machine"
        )
    if not destination.strip():
        raise ValidationError(f"files of task '{task.id}': a destination is empty")
    return posixpath.normpath(destination)


def _source(task: MainTask | SideTask, source: str) -> Path:
    where = f"files of task '{task.id}': source '{source}'"
    if source.startswith(("http://", "https://", "data:")):
        raise ValidationError(f"{where} must be a host file or folder")
    path = Path(source)
    if not source.strip() or path == Path():
        raise ValidationError(f"{where} is empty")
    if not path.is_absolute():
        if task.root is None:
            raise ValidationError(f"{where} is relative, but the task has no folder")
        path = (task.root / path).resolve()
        if path == task.root.resolve() or not path.is_relative_to(task.root.resolve()):
            raise ValidationError(f"{where} leaves the task's folder")
    if not path.exists():
        raise ValidationError(f"{where} does not exist")
    return path


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
