"""What can be downloaded: pieces of logs and of text in a row, whole or by range, with a strong ETag."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from control_tower.errors import StateError
from control_tower.viewer.errors import Refusal

if TYPE_CHECKING:
    from control_tower.logs.bundles import SampleRange
    from control_tower.storage.blobs import Blob, Blobs
    from control_tower.storage.source import ByteSource
    from control_tower.viewer.pool import Pool

_RANGE = re.compile(r"bytes=(?P<first>\d{0,19})-(?P<last>\d{0,19})")


class Named:
    """The bytes of a log under the name that its readers know, not that of the place where it is kept."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self.name = name
        self.size = source.size
        self.read_at = source.read_at
        self.close = source.close


class Piece(Protocol):
    """Bytes of a known number."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, length: int) -> AsyncGenerator[bytes]:
        """A range of them."""
        ...


@dataclass(frozen=True)
class Text:
    """Bytes in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    async def read(self, start: int, length: int) -> AsyncGenerator[bytes]:
        yield self.data[start : start + length]


@dataclass(frozen=True)
class Stored:
    """A range of a log as it is kept."""

    blobs: Blobs
    blob: Blob
    start: int
    size: int

    def read(self, start: int, length: int) -> AsyncGenerator[bytes]:
        return self.blobs.read(self.blob.key, self.start + start, length, pinned=self.blob)


@dataclass(frozen=True)
class Member:
    """A member of a log, decompressed. A range of it costs what stands before it, too."""

    pool: Pool
    blobs: Blobs
    blob: Blob
    where: SampleRange

    @property
    def size(self) -> int:
        return self.where["uncompressedSize"]

    async def read(self, start: int, length: int) -> AsyncGenerator[bytes]:
        before, left = start, length
        made = member_bytes(self.blobs.source(self.blob), self.where)
        async with aclosing(self.pool.iterate(made)) as plain:
            async for part in plain:
                wanted = part[before : before + left]
                before = max(before - len(part), 0)
                left -= len(wanted)
                if wanted:
                    yield wanted
                if not left and start + length < self.size:
                    return


@dataclass(frozen=True)
class Content:
    """A download."""

    pieces: Sequence[Piece]
    e_tag: str
    """Strong, without quotes; no two downloads that differ share it."""
    media_type: str
    filename: str | None = None
    """What browsers save it as."""
    encoding: str | None = None
    """Of the bytes, where it is one that HTTP undoes."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(piece.size for piece in self.pieces)

    async def read(self, start: int, length: int) -> AsyncGenerator[bytes]:
        """A range."""
        for piece in self.pieces:
            taken = min(max(piece.size - start, 0), length)
            if taken:
                async with aclosing(piece.read(start, taken)) as parts:
                    async for part in parts:
                        yield part
            start = max(start - piece.size, 0)
            length -= taken


def member_bytes(source: ByteSource, where: SampleRange) -> Generator[bytes]:
    """A member of a log, decompressed and checked; the source is closed in the end.

    Raises:
        StateError: It is damaged, which shows when all else was given out.
    """
    from control_tower.logs.compression import CHUNK, BadData, decompress

    end = where["compressedStart"] + where["compressedSize"]
    starts = range(where["compressedStart"], end, CHUNK)
    length = checksum = 0
    try:
        for part in decompress(
            where["compressionMethod"], (source.read_at(at, min(CHUNK, end - at)) for at in starts)
        ):
            length += len(part)
            checksum = zlib.crc32(part, checksum)
            if length > where["uncompressedSize"]:
                break
            yield part
    except BadData as error:
        raise StateError(f"{where['samplePath']}: {error}") from None
    finally:
        source.close()
    if (length, checksum) != (where["uncompressedSize"], where["crc32"]):
        raise StateError(f"{where['samplePath']}: it is damaged: size or checksum are not as recorded")


async def download(request: Request, content: Content) -> Response:
    """The answer to a request for a download: all of it, a range, or that it has not changed.

    Raises:
        Refusal: The range is beyond the end.
        ExpectedError: It cannot be read.
    """
    size = content.size
    e_tag = f'"{content.e_tag}"'
    headers = {"ETag": e_tag, "Accept-Ranges": "bytes", **content.headers}
    if e_tag in re.findall(r'(?:W/)?("[^"]*")', request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if content.encoding:
        headers["Content-Encoding"] = content.encoding
    if content.filename:
        headers["Content-Disposition"] = attachment(content.filename)
    found = _range(request, e_tag, size)
    start, length = found or (0, size)
    if found:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    headers["Content-Length"] = str(length)
    status = 206 if found else 200
    if is_head(request) or not length:
        return Response(status_code=status, headers=headers, media_type=content.media_type)
    return await streaming(content.read(start, length), status, headers, content.media_type)


async def streaming(
    parts: AsyncGenerator[bytes], status: int, headers: Mapping[str, str], media_type: str
) -> Response:
    """An answer that is sent as it is read; a failure before the first bytes is still an error of its own."""
    first = await anext(parts, b"")

    async def body() -> AsyncIterator[bytes]:
        try:
            yield first
            async for part in parts:
                yield part
        finally:
            await parts.aclose()

    return StreamingResponse(body(), status, headers, media_type)


def is_head(request: Request) -> bool:
    """Whether only headers are wanted; the edge hands such a request on as a GET."""
    return request.state.head


def attachment(filename: str) -> str:
    """The header that says what a download is saved as."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def _range(request: Request, e_tag: str, size: int) -> tuple[int, int] | None:
    """Start and length of the one range that is asked for; None for everything."""
    asked = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if asked is None or request.headers.get("if-range", e_tag) != e_tag:
        return None
    first, last = asked["first"], asked["last"]
    if not first and not last:
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if first and last and int(last) < start:
        return None
    if start >= size or (not first and int(last) == 0):
        beyond = {"Content-Range": f"bytes */{size}"}
        raise Refusal(416, "range_not_satisfiable", f"there are {size} bytes", beyond)
    return start, end - start + 1
