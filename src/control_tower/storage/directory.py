"""Blobs in a directory: parts and objects appear under their names only when they are whole on the disk."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from control_tower.errors import OperationError, StateError
from control_tower.storage.blobs import PIECE, Blob, OtherPart, OutOfSpace, Part, PartMissing, Staged
from control_tower.storage.source import FileSource
from control_tower.storage.threaded import Digests, ThreadedBlobs, Whole

_TEMPORARY = "."
"""What names of files in the making begin with."""


class DirectoryBlobs(ThreadedBlobs):
    """Objects at `sha256/ab/cd/<digest>.eval`, parts at `staged/<upload>/<number>`."""

    def __init__(self, folder: str | Path) -> None:
        """Names the place; folders are made when something is written.

        Args:
            folder: Of one file system that knows hard links.
        """
        super().__init__()
        self.folder = Path(folder)
        self._staged = self.folder / "staged"

    @property
    def bucket(self) -> str:
        return "local"

    def source(self, blob: Blob) -> FileSource:
        with self._errors():
            return self._open(blob.key, blob)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise OperationError(f"{error.filename or self.folder}: {error.strerror}") from error

    def _head(self, key: str) -> Blob | None:
        try:
            return _blob(key, self._path(key).stat())
        except FileNotFoundError:
            return None

    def _pieces(self, key: str, start: int, length: int | None, pinned: Blob | None) -> Iterator[bytes]:
        with self._open(key, pinned) as source:
            end = source.size if length is None else start + length
            if not 0 <= start <= end <= source.size:
                raise OperationError(f"{key}: has {source.size} bytes, {start} to {end} are not in it")
            for at in range(start, end, PIECE):
                yield source.read_at(at, min(PIECE, end - at))

    def _open(self, key: str, pinned: Blob | None) -> FileSource:
        path = self._path(key)
        if not path.exists():
            raise StateError(f"{key}: there is no such object")
        source = FileSource(path)
        if pinned and _blob(key, source.status) != pinned:
            source.close()
            raise StateError(f"{key}: is no longer the object that was looked at; try again")
        return source

    @contextmanager
    def _spool(self, upload: str) -> Generator[BinaryIO]:
        folder = self._staged / upload
        _make(folder, self.folder)
        with _unless_abandoned(), _temporary(folder) as file:
            yield file

    def _keep_part(self, upload: str, number: int, file: BinaryIO, digests: Digests) -> None:
        path = self._staged / upload / str(number)
        with _unless_abandoned():
            if _place(file, path):
                return
            there = Digests()
            for piece in _read(path):
                there.add(piece)
        if there.sha256 != digests.sha256:
            raise OtherPart(f"part {number}: another one of this number is there")

    def _parts(self, upload: str) -> dict[int, Part]:
        parts: dict[int, Part] = {}
        for entry in _entries(self._staged / upload):
            # Another may abandon the upload meanwhile.
            with suppress(FileNotFoundError):
                if entry.name.isdecimal():
                    number, status = int(entry.name), entry.stat()
                    parts[number] = Part(number, status.st_size, _e_tag(status))
        return parts

    def _part_pieces(self, upload: str, part: Part) -> Iterator[bytes]:
        return _read(self._staged / upload / str(part.number))

    @contextmanager
    def _whole(self, upload: str, parts: list[Part]) -> Generator[Whole]:
        folder = self._staged / upload
        with _unless_abandoned():
            if len(parts) == 1:
                with (folder / str(parts[0].number)).open("rb") as only:
                    yield _File(self, only, kept=True)
            else:
                with _temporary(folder) as file:
                    yield _File(self, file, kept=False)

    def commit(self, file: BinaryIO, key: str) -> bool:
        """Makes a file of the same file system an object; False when there is one."""
        path = self._path(key)
        _make(path.parent, self.folder)
        return _place(file, path)

    def _abandon(self, upload: str) -> None:
        folder = self._staged / upload
        while folder.exists():
            try:
                shutil.rmtree(folder)
            except OSError as error:
                # Others may remove or add at the same time.
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise

    def _uploads(self) -> Iterator[Staged]:
        for folder in _entries(self._staged):
            with suppress(FileNotFoundError):
                status = [entry.stat() for entry in _entries(folder.path)]
                changed = max(folder.stat().st_mtime, *(one.st_mtime for one in status), 0)
                yield Staged(folder.name, sum(one.st_size for one in status), changed)

    def _blobs(self) -> Iterator[Blob]:
        for path in (self.folder / "sha256").glob("??/??/*.eval"):
            blob = self._head(path.relative_to(self.folder).as_posix())
            if blob:
                yield blob

    def _delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _free(self) -> int:
        _make(self.folder, self.folder)
        return shutil.disk_usage(self.folder).free

    def _clean(self, before: float) -> int:
        count = 0
        for entry in (entry for folder in _entries(self._staged) for entry in _entries(folder.path)):
            with suppress(FileNotFoundError):
                if entry.name.startswith(_TEMPORARY) and entry.stat().st_mtime < before:
                    Path(entry.path).unlink()
                    count += 1
        return count

    def _check(self) -> list[str]:
        probe = f"probe{secrets.token_hex(8)}"
        try:
            with self._errors(), self._spool(probe) as file:
                file.write(b"probe")
                path = self._staged / probe / "1"
                if not _place(file, path) or _place(file, path):
                    return [f"{self.folder}: hard links replace what is there; choose another file system"]
            return []
        except (OperationError, OutOfSpace) as error:
            return [f"{error}; logs cannot be kept there"]
        finally:
            with suppress(OSError):
                self._abandon(probe)

    def _path(self, key: str) -> Path:
        if ".." in key.split("/"):
            raise StateError(f"{key}: there is no such object")
        return self.folder / key


class _File:
    """An object in the making, as a file; a single part is taken as it is."""

    def __init__(self, blobs: DirectoryBlobs, file: BinaryIO, *, kept: bool) -> None:
        self._blobs = blobs
        self._file = file
        self._kept = kept

    def write(self, data: bytes) -> None:
        if not self._kept:
            self._file.write(data)

    def commit(self, key: str) -> bool:
        return self._blobs.commit(self._file, key)


@contextmanager
def _unless_abandoned() -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        raise PartMissing("the parts of the upload are gone") from None


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            yield piece


@contextmanager
def _temporary(folder: Path) -> Generator[BinaryIO]:
    path = folder / f"{_TEMPORARY}{secrets.token_hex(8)}"
    with path.open("xb") as file:
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


def _place(file: BinaryIO, path: Path) -> bool:
    """Gives a file its name for good; False when the name is taken."""
    file.flush()
    os.fsync(file.fileno())
    try:
        os.link(file.name, path)
        placed = True
    except FileExistsError:
        placed = False
    # Also when it was there: who placed it may have died before this.
    _sync(path.parent)
    return placed


def _make(folder: Path, root: Path) -> None:
    """Makes folders that outlast a loss of power."""
    if folder.exists():
        return
    if folder == root:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    _make(folder.parent, root)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _blob(key: str, status: os.stat_result) -> Blob:
    return Blob(key, status.st_size, _e_tag(status), None, status.st_mtime)


def _e_tag(status: os.stat_result) -> str:
    return f'"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"'
