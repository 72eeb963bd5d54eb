"""A zip archive written whole or not at all: a temporary file beside the target, flushed, then renamed."""

from __future__ import annotations

import fcntl
import os
import secrets
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from control_tower.errors import OperationError
from control_tower.logs.compression import compress
from control_tower.logs.zip_reader import ZipReader
from control_tower.logs.zip_records import (
    DESCRIPTOR,
    UTF8,
    ZSTD,
    Entry,
    central_bytes,
    end_bytes,
    local_bytes,
)

_WRITING = ".writing"

FIRST_DAY = 1 << 21 | 1 << 16
"""1980-01-01 00:00 as DOS time: members we make carry no time, so that equal content is equal bytes."""


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file to write, which takes the place of `path` only when the block ends well.

    Whatever kills the process, `path` is what it was or the whole new file; what a killed one had begun of
    it is removed by the next that writes it.

    Raises:
        OperationError: The folder cannot be written, or the disk is full; `path` is untouched.
    """
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        temporary, descriptor = _begin(target)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if target.exists():
                    os.fchmod(descriptor, target.stat().st_mode & 0o777)
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        raise OperationError(f"{path}: cannot be written: {error.strerror or error}") from error


def _begin(target: Path) -> tuple[Path, int]:
    """A new file beside `target`, locked for as long as this process has it open."""
    while True:
        temporary = target.parent / f"{_beginning(target)}{secrets.token_hex(6)}{_WRITING}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        # Where locks are not known, nobody can tell that it was abandoned, and nobody removes it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        # Somebody took it for abandoned before it was locked.
        os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    """Removes what nobody writes any more because he was killed."""
    beginning = _beginning(target)
    for path in target.parent.iterdir():
        if path.name.startswith(beginning) and path.name.endswith(_WRITING):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _beginning(target: Path) -> str:
    return f".{target.name[:100]}."


@contextmanager
def new_archive(path: Path) -> Generator[ZipWriter]:
    """An archive at `path`, complete and durable when the block has ended well; else as if never begun.

    Raises:
        OperationError: It cannot be written.
    """
    with replacing(path) as file:
        writer = ZipWriter(file)
        yield writer
        writer.finish()


class ZipWriter:
    """Members one after the other, then the directory. Its output is a function of what is added."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = 0
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, data: bytes) -> None:
        """A new member, compressed with zstd.

        Raises:
            ValueError: There is a member of that name.
        """
        compressed = compress(data)
        sizes = (len(compressed), len(data))
        entry = Entry(name, ZSTD, _flags(name), FIRST_DAY, zlib.crc32(data), *sizes, self._offset)
        self._begin(entry)
        self._write(compressed)

    def copy(self, reader: ZipReader, name: str) -> None:
        """A member of another archive as it is, without decompressing.

        Raises:
            KeyError: The other archive has none of that name.
            ValueError: This one has.
            DamagedArchive: Its local header is damaged.
        """
        entry = reader.members[name]
        self._begin_copy(entry)
        for part in reader.raw(entry):
            self._write(part)

    def skip(self, entry: Entry) -> None:
        """A member of another archive as it is, without its data, which belongs where the file now ends.

        Raises:
            ValueError: There is a member of that name.
        """
        self._begin_copy(entry)
        self._offset += entry.compressed_size

    def finish(self) -> None:
        """Writes the directory; nothing can be added after it."""
        start = self._offset
        for entry in self._entries.values():
            self._write(central_bytes(entry))
        self._write(end_bytes(start, self._offset - start, len(self._entries)))

    def _begin_copy(self, entry: Entry) -> None:
        flags = entry.flags & ~(DESCRIPTOR | UTF8) | _flags(entry.name)
        self._begin(entry._replace(offset=self._offset, flags=flags))

    def _begin(self, entry: Entry) -> None:
        if entry.name in self._entries:
            raise ValueError(f"member {entry.name!r} is in the archive already")
        self._entries[entry.name] = entry
        self._write(local_bytes(entry))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._offset += len(data)


def _flags(name: str) -> int:
    return 0 if name.isascii() else UTF8


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
