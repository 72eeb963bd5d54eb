"""A hidden folder for work that is not done yet; what killed processes left is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = ".converting-"


@contextmanager
def scratch_folder(parent: Path) -> Generator[Path]:
    """A new folder in `parent`, gone when the block has ended.

    While it is used its lock is held, which the system lets go of when the process dies.
    """
    with _locked(parent):
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_unless_used(left)
        folder = TemporaryDirectory(prefix=_PREFIX, dir=parent)
        used = _open_locked(Path(folder.name), fcntl.LOCK_EX)
    try:
        with folder:
            yield Path(folder.name)
    finally:
        os.close(used)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    descriptor = _open_locked(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def _remove_unless_used(folder: Path) -> None:
    try:
        descriptor = _open_locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _open_locked(folder: Path, how: int) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
