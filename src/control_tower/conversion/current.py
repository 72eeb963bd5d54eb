"""Older logs for commands that read the current format: converted for as long as the process runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from control_tower.conversion.convert import age_of_log, convert
from control_tower.conversion.version import Age


def current_path(path: Path) -> Path:
    """The log in the current format: the path itself, or that of a converted copy of the same file name.

    The copy is gone when the process ends; the log stays as it is.

    Raises:
        StateError: There is no such file.
        ValidationError: It cannot be converted; the message names the sample and the reason.
        DamagedArchive: It is not readable.
    """
    if age_of_log(path) is Age.CURRENT:
        return path
    status = path.stat()
    return _converted(path.resolve(), status.st_size, status.st_mtime_ns)


def original_of(path: Path) -> Path:
    """The log that `current_path` made a converted copy of; any other path itself."""
    return _originals.get(path, path)


_originals: dict[Path, Path] = {}


@cache
def _converted(path: Path, size: int, changed: int) -> Path:
    target = Path(_folder().name) / f"{len(list(Path(_folder().name).iterdir()))}" / path.name
    convert(path, target)
    _originals[target] = path
    return target


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="ct-converted-")
