"""Files that tasks put into the agent's machine: checked early, before any sandbox starts."""

from collections.abc import Sequence
from pathlib import Path

from control_tower.environments.task import MainTask, SideTask
from control_tower.errors import ValidationError


def task_files(tasks: Sequence[MainTask | SideTask]) -> dict[str, str]:
    """The files of a sample: path inside the machine to host path of a file or folder.

    Raises:
        ValidationError: a source that is missing or not a plain path below its task, or two tasks that
            write the same place.
    """
    files: dict[str, str] = {}
    owner: dict[str, str] = {}
    for task in tasks:
        for destination, source in (task.files or {}).items():
            where = f"{task.id}: files[{destination!r}]"
            _check_destination(where, destination)
            resolved = _resolved(where, source, task.root)
            for other in owner:
                if _nested(destination, other):
                    raise ValidationError(f"{where} meets {other!r} of {owner[other]}")
            owner[destination] = task.id
            files[destination] = str(resolved)
    return files


def _check_destination(where: str, destination: str) -> None:
    if not destination or destination in (".", "/"):
        raise ValidationError(f"{where}: the destination is empty")
    if ":" in destination:
        raise ValidationError(f"{where}: files go to the agent's machine only, not to another service")


def _resolved(where: str, source: str, root: Path | None) -> Path:
    if not source or source == ".":
        raise ValidationError(f"{where}: the source is empty")
    if source.startswith(("http://", "https://", "data:")):
        raise ValidationError(f"{where}: the source must be a host path, not {source.split(':')[0]}:")
    path = Path(source)
    if not path.is_absolute():
        if root is None:
            raise ValidationError(f"{where}: {source!r} is relative, but the task has no folder")
        path = (root / path).resolve()
        if not path.is_relative_to(root.resolve()):
            raise ValidationError(f"{where}: {source!r} leaves the task's folder")
    if not path.exists():
        raise ValidationError(f"{where}: {path} does not exist")
    return path


def _nested(one: str, other: str) -> bool:
    a, b = Path(one), Path(other)
    return a == b or a.is_relative_to(b) or b.is_relative_to(a)
