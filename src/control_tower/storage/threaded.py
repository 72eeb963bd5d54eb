"""What a directory and S3 share: their blocking calls in threads, and how an upload becomes an object."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from threading import Lock
from typing import Any, BinaryIO, ParamSpec, Protocol, TypeVar

from control_tower.errors import OperationError, ValidationError
from control_tower.storage.blobs import (
    PIECE,
    Assembled,
    Blob,
    DigestMismatch,
    OutOfSpace,
    Part,
    PartMissing,
    Staged,
    blob_key,
)
from control_tower.storage.source import ByteSource

THREADS = 16
"""How many calls run at once."""

_LISTED_AT_ONCE = 500
_UPLOAD = re.compile(r"[a-z0-9]{1,64}")

P = ParamSpec("P")
T = TypeVar("T")


class Digests:
    """Of bytes as they pass."""

    def __init__(self) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, data: bytes | bytearray) -> None:
        """The next bytes."""
        self.size += len(data)
        self._sha256.update(data)
        self._md5.update(data)

    @property
    def sha256(self) -> str:
        """Hex."""
        return self._sha256.hexdigest()

    @property
    def md5(self) -> str:
        """Hex."""
        return self._md5.hexdigest()

    def must_be(self, what: str, sha256: str | None, size: int | None) -> None:
        """Compares with what was announced; None is anything.

        Raises:
            DigestMismatch: It is another.
        """
        if size is not None and self.size != size:
            raise DigestMismatch(f"{what}: {self.size} bytes arrived, {size} were announced; send it again")
        if sha256 is not None and self.sha256 != sha256:
            raise DigestMismatch(f"{what}: its SHA-256 is not the one announced; send it again")


class Whole(Protocol):
    """An object in the making."""

    def write(self, data: bytes) -> None:
        """The next bytes."""
        ...

    def commit(self, key: str) -> bool:
        """Makes it the object of a key; False when there is one."""
        ...


class ThreadedBlobs(ABC):
    """`Blobs` by calls that block."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "blobs")

    async def head(self, key: str) -> Blob | None:
        return await self._run(self._head, key)

    async def read(
        self, key: str, start: int = 0, length: int | None = None, *, pinned: Blob | None = None
    ) -> AsyncGenerator[bytes]:
        async for piece in self._stream(self._pieces(key, start, length, pinned), 1):
            yield piece

    async def put_part(
        self, upload: str, number: int, data: AsyncIterable[bytes], *, sha256: str | None, size: int | None
    ) -> None:
        what = f"part {number} of upload {_name(upload)}"
        digests = Digests()
        spool = self._spool(upload)
        alone = Lock()
        file = await self._run(_locked(alone, spool.__enter__))
        try:
            waiting = bytearray()
            async for chunk in data:
                waiting += chunk
                if size is not None and digests.size + len(waiting) > size:
                    raise DigestMismatch(f"{what}: more than the {size} bytes that were announced arrived")
                if len(waiting) >= PIECE:
                    await self._run(_locked(alone, _add), file, digests, waiting)
                    waiting = bytearray()
            await self._run(_locked(alone, _add), file, digests, waiting)
            digests.must_be(what, sha256, size)
            await self._run(_locked(alone, self._keep_part), upload, number, file, digests)
        finally:
            await self._run(_locked(alone, spool.__exit__), None, None, None)

    async def parts(self, upload: str) -> Mapping[int, Part]:
        return await self._run(self._parts, _name(upload))

    async def assemble(self, upload: str, *, sha256: str | None = None, size: int | None = None) -> Assembled:
        try:
            return await self._run(self._assemble, _name(upload), sha256, size)
        except DigestMismatch:
            await self.abandon(upload)
            raise

    async def abandon(self, upload: str) -> None:
        await self._run(self._abandon, _name(upload))

    async def uploads(self) -> AsyncGenerator[Staged]:
        async for staged in self._stream(self._uploads(), _LISTED_AT_ONCE):
            if _UPLOAD.fullmatch(staged.upload):
                yield staged

    async def blobs(self) -> AsyncGenerator[Blob]:
        async for blob in self._stream(self._blobs(), _LISTED_AT_ONCE):
            yield blob

    async def delete(self, key: str) -> None:
        await self._run(self._delete, key)

    async def free(self) -> int | None:
        return await self._run(self._free)

    async def clean(self, before: float) -> int:
        return await self._run(self._clean, before)

    async def check(self) -> list[str]:
        return await self._run(self._check)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    @abstractmethod
    def source(self, blob: Blob) -> ByteSource: ...

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """What the store says, as expected errors."""

    @abstractmethod
    def _head(self, key: str) -> Blob | None: ...

    @abstractmethod
    def _pieces(self, key: str, start: int, length: int | None, pinned: Blob | None) -> Iterator[bytes]: ...

    @abstractmethod
    def _spool(self, upload: str) -> AbstractContextManager[BinaryIO]:
        """A file for a part that arrives, gone when it is left."""

    @abstractmethod
    def _keep_part(self, upload: str, number: int, file: BinaryIO, digests: Digests) -> None:
        """Keeps what was spooled, unless the same is there.

        Raises:
            OtherPart: Another is there.
        """

    @abstractmethod
    def _parts(self, upload: str) -> dict[int, Part]: ...

    @abstractmethod
    def _part_pieces(self, upload: str, part: Part) -> Iterator[bytes]:
        """The bytes of a part.

        Raises:
            PartMissing: It is no longer there.
        """

    @abstractmethod
    def _whole(self, upload: str, parts: list[Part]) -> AbstractContextManager[Whole]: ...

    @abstractmethod
    def _abandon(self, upload: str) -> None: ...

    @abstractmethod
    def _uploads(self) -> Iterator[Staged]: ...

    @abstractmethod
    def _blobs(self) -> Iterator[Blob]: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _free(self) -> int | None: ...

    @abstractmethod
    def _clean(self, before: float) -> int: ...

    @abstractmethod
    def _check(self) -> list[str]: ...

    def _assemble(self, upload: str, sha256: str | None, size: int | None) -> Assembled:
        there = self._parts(upload)
        missing = [number for number in range(1, max(there, default=1) + 1) if number not in there]
        if missing:
            raise PartMissing(f"the upload lacks part {missing[0]}; send it, then complete again")
        arrived = sum(part.size for part in there.values())
        if size is not None and arrived < size:
            raise PartMissing(
                f"{arrived} of {size} bytes have arrived; send what is missing, then complete again"
            )
        parts = [there[number] for number in sorted(there)]
        digests = Digests()
        with self._whole(upload, parts) as whole:
            for part in parts:
                for piece in self._part_pieces(upload, part):
                    digests.add(piece)
                    whole.write(piece)
            digests.must_be("the upload", sha256, size)
            key = blob_key(digests.sha256)
            committed = whole.commit(key)
        blob = self._head(key)
        if blob is None or blob.size != digests.size:
            raise OperationError(f"{key}: is not there as it was written; see what removes or changes it")
        return Assembled(blob, digests.sha256, digests.md5, existing=not committed)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call in a thread; it runs to its end though the caller is cancelled."""

        def named() -> T:
            with self._errors():
                try:
                    return call(*args, **kwargs)
                except OSError as error:
                    if error.errno in (errno.ENOSPC, errno.EDQUOT):
                        raise OutOfSpace("there is no room left on the disk of the logs") from None
                    raise

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, named))

    async def _stream(self, items: Iterator[T], at_once: int) -> AsyncGenerator[T]:
        """The items of a generator that blocks."""
        alone = Lock()
        generator: Any = items

        def following() -> list[T]:
            return list(islice(items, at_once))

        try:
            while found := await self._run(_locked(alone, following)):
                for item in found:
                    yield item
        finally:
            await self._run(_locked(alone, generator.close))


def _locked(alone: Lock, call: Callable[P, T]) -> Callable[P, T]:
    """One at a time: what closes a file waits for what a cancelled caller left at work on it."""

    def one(*args: P.args, **kwargs: P.kwargs) -> T:
        with alone:
            return call(*args, **kwargs)

    return one


def _add(file: BinaryIO, digests: Digests, data: bytearray) -> None:
    digests.add(data)
    file.write(data)


def _name(upload: str) -> str:
    if not _UPLOAD.fullmatch(upload):
        raise ValidationError(f"{upload[:80]!r}: is no id of an upload")
    return upload
