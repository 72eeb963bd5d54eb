"""What a store of blobs must do; a directory and S3 do it alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from control_tower.errors import StateError
from control_tower.storage.source import ByteSource

PIECE = 1024 * 1024
"""Bytes read or written at once."""


@dataclass(frozen=True)
class Blob:
    """A whole object that is there."""

    key: str
    size: int
    """Bytes."""
    e_tag: str
    """As the store gives it, with its quotes; another object has another, and so has a copy of the store."""
    version_id: str | None
    """Of this version of the object, where the store keeps versions."""
    modified: float
    """When it was committed, Unix seconds."""


@dataclass(frozen=True)
class Part:
    """A piece of an upload that has arrived whole."""

    number: int
    """From 1."""
    size: int
    """Bytes."""
    e_tag: str
    """As for blobs."""


@dataclass(frozen=True)
class Staged:
    """An upload whose parts are still there."""

    upload: str
    size: int
    """Bytes of its parts."""
    changed: float
    """When the last part came, Unix seconds."""


@dataclass(frozen=True)
class Assembled:
    """A committed upload."""

    blob: Blob
    sha256: str
    md5: str
    """Of the whole object, hex."""
    existing: bool
    """Whether the object was there already, with these bytes."""


class DigestMismatch(StateError):
    """Bytes that arrived are not those that were announced; they are not kept."""


class OtherPart(StateError):
    """A part of this number with other bytes is there."""


class PartMissing(StateError):
    """An upload is not whole, or no longer."""


class OutOfSpace(StateError):
    """The store has no room for more; what is kept is untouched."""


class Blobs(Protocol):
    """Objects that are written once and never changed, and uploads that become one.

    All is asynchronous; memory does not grow with an object's size. A crash at any moment leaves an object
    whole or absent, and of an upload the parts that were acknowledged. What cannot be reached or written is
    an OperationError.
    """

    @property
    def bucket(self) -> str:
        """What clients are told the bucket is: its name in S3, or `local`."""
        ...

    async def head(self, key: str) -> Blob | None:
        """The object of a key, None when there is none."""
        ...

    def read(
        self, key: str, start: int = 0, length: int | None = None, *, pinned: Blob | None = None
    ) -> AsyncGenerator[bytes]:
        """A range of an object, in pieces of at most 1 MiB.

        Args:
            key: Of the object.
            start: First byte.
            length: Bytes; None is up to the end.
            pinned: The object as it was when looked at.

        Raises:
            StateError: There is no such object, or it is no longer the pinned one.
            OperationError: The range is not in it, or it changed while it was read.
        """
        ...

    def source(self, blob: Blob) -> ByteSource:
        """An object for readers by position; its methods block, so they are for worker threads.

        Raises:
            StateError: There is no such object, or it is no longer this one. In S3 this is found when it is
                read, as an OperationError where it is another.
        """
        ...

    async def put_part(
        self, upload: str, number: int, data: AsyncIterable[bytes], *, sha256: str | None, size: int | None
    ) -> None:
        """Keeps a part of an upload durably; the same part again is no error.

        Args:
            upload: Id of the upload, any name of `[a-z0-9]`.
            number: Of the part, from 1.
            data: Its bytes.
            sha256: What their digest must be; None takes what comes.
            size: How many there must be; None takes what comes. No more than this is ever kept.

        Raises:
            DigestMismatch: The digest or the size is another; the part is not kept.
            OtherPart: Another part of this number is there; it stays.
            PartMissing: The upload was abandoned meanwhile.
            OutOfSpace: There is no room.
        """
        ...

    async def parts(self, upload: str) -> Mapping[int, Part]:
        """The parts of an upload that have arrived, by number; none when it is unknown."""
        ...

    async def assemble(self, upload: str, *, sha256: str | None = None, size: int | None = None) -> Assembled:
        """Joins the parts of an upload, checks the whole and commits it under `blob_key` of its digest.

        The parts stay until `abandon`, so it may be called again after a crash, and by several processes at
        once: one commits. Where the object is there already, nothing is written.

        Args:
            upload: Whose parts 1 to n have arrived.
            sha256: What the digest of the whole must be.
            size: What its size must be.

        Raises:
            DigestMismatch: It is another; the parts are dropped, nothing is committed.
            PartMissing: A part is missing, or all.
            OutOfSpace: There is no room; the parts are kept.
        """
        ...

    async def abandon(self, upload: str) -> None:
        """Drops the parts of an upload; one that is unknown is no error."""
        ...

    def uploads(self) -> AsyncGenerator[Staged]:
        """Uploads with parts."""
        ...

    def blobs(self) -> AsyncGenerator[Blob]:
        """All committed objects, in no order; without their versions."""
        ...

    async def delete(self, key: str) -> None:
        """Removes an object; one that is not there is no error."""
        ...

    async def free(self) -> int | None:
        """Bytes there is room for; None where there is no end of it."""
        ...

    async def clean(self, before: float) -> int:
        """Drops what assemblies that died since left behind.

        Args:
            before: Only what was begun earlier, Unix seconds.

        Returns:
            How many were dropped.
        """
        ...

    async def check(self) -> list[str]:
        """What is wrong, a line each: not writable, conditions ignored, clock askew."""
        ...

    async def close(self) -> None:
        """Lets go of connections and files."""
        ...


def blob_key(sha256: str) -> str:
    """Where a log is kept: under the digest of its bytes."""
    return f"sha256/{sha256[:2]}/{sha256[2:4]}/{sha256}.eval"
