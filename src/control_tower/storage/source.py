"""Bytes of one log by position, all of the same version of the object."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from control_tower.errors import OperationError, StateError


class ByteSource(Protocol):
    """What the archive reader reads from: a local file, an object in S3, bytes in memory."""

    @property
    def name(self) -> str:
        """How messages call it: a path or an address."""
        ...

    @property
    def size(self) -> int:
        """Length in bytes, fixed while the source is open."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`.

        Raises:
            OperationError: The object changed since it was opened, or could not be read.
        """
        ...

    def close(self) -> None: ...


def open_source(log: str | Path) -> ByteSource:
    """A log by its path or its address.

    Args:
        log: A path, or `s3://<bucket>/<key>`.

    Raises:
        StateError: There is no such file or object.
        OperationError: It cannot be opened.
    """
    if isinstance(log, str) and log.startswith("s3://"):
        from control_tower.storage.s3_object import S3Source

        return S3Source(log)
    return FileSource(log)


class FileSource:
    """A local file, held open: if replaced, it is still read as it was; if edited in place, it is refused."""

    def __init__(self, path: str | Path) -> None:
        """Opens the file.

        Raises:
            StateError: There is no such file.
            OperationError: It cannot be opened.
        """
        self.path = Path(path)
        try:
            self._file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            raise StateError(f"{self.path}: there is no such file") from None
        except OSError as error:
            raise OperationError(f"{self.path}: cannot be opened: {error.strerror}") from error
        self.status = os.fstat(self._file.fileno())
        """The file as it was opened."""

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int:
        return self.status.st_size

    def read_at(self, offset: int, length: int) -> bytes:
        data = bytearray()
        try:
            while len(data) < length:
                part = os.pread(self._file.fileno(), length - len(data), offset + len(data))
                if not part:
                    break
                data += part
        except OSError as error:
            raise OperationError(f"{self.name}: cannot be read: {error.strerror}") from error
        now = os.fstat(self._file.fileno())
        changed = (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns)
        if len(data) != length or changed:
            raise OperationError(f"{self.name}: changed while it was being read; try again")
        return bytes(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BytesSource:
    """A log held in memory."""

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self._data = data
        self.name = name

    @property
    def size(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, length: int) -> bytes:
        data = self._data[offset : offset + length]
        if len(data) != length:
            raise OperationError(f"{self.name}: {length} bytes at {offset} are outside of it")
        return data

    def close(self) -> None:
        pass
