"""A trajectory's sample as downloads: the bytes of the log in the cheapest form a client takes."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from control_tower.errors import StateError, ValidationError
from control_tower.logs.json_text import dumps
from control_tower.logs.zip_records import DEFLATE, ZSTD
from control_tower.viewer.content import Content, Member, Named, Piece, Stored, Text

if TYPE_CHECKING:
    from control_tower.agent_runs.queries import StoredSample
    from control_tower.storage.blobs import Blobs
    from control_tower.viewer.pool import Pool

JSON = "application/json; nonfinite=literal"
"""Samples are as Inspect wrote them: NaN and infinities stand in them by these names."""

LARGEST_WINDOW = 8 * 1024 * 1024
"""Of a zstd stream that clients of HTTP must be able to undo."""

_FRAME_HEADER = 18
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


class Samples:
    """The samples of a site."""

    def __init__(self, blobs: Blobs, pool: Pool) -> None:
        self._blobs = blobs
        self._pool = pool

    async def raw(self, found: StoredSample, accept_encoding: str) -> Content:
        """The sample's JSON: as it is stored where the client undoes that, else decompressed.

        Args:
            found: The sample.
            accept_encoding: What the client undoes, as the header says.
        """
        where = found.range
        accepted = _accepted(accept_encoding)
        stored = Stored(self._blobs, found.blob, where["compressedStart"], where["compressedSize"])
        pieces: Sequence[Piece] = [Member(self._pool, self._blobs, found.blob, where)]
        encoding = None
        if where["compressionMethod"] == ZSTD and "zstd" in accepted and await self._small_window(stored):
            pieces, encoding = [stored], "zstd"
        elif where["compressionMethod"] == DEFLATE and "gzip" in accepted:
            trailer = struct.pack("<II", where["crc32"], where["uncompressedSize"] & 0xFFFFFFFF)
            pieces, encoding = [Text(_GZIP_HEADER), stored, Text(trailer)], "gzip"
        return Content(pieces, _tag(found, encoding or "plain"), JSON, encoding=encoding)

    def bundle(self, found: StoredSample) -> Content:
        """`{"metadata": ..., "sample": ...}`, the sample's bytes untouched."""
        metadata = dumps(found.metadata)
        pieces = [
            Text(b'{"metadata":' + metadata + b',"sample":'),
            Member(self._pool, self._blobs, found.blob, found.range),
            Text(b"}"),
        ]
        return Content(pieces, _tag(found, hashlib.sha256(metadata).hexdigest()), JSON)

    async def archive(self, found: StoredSample, name: str) -> Content:
        """The sample as a log of its own.

        Args:
            found: The sample.
            name: What it is saved as.

        Raises:
            StateError: What stands around the sample in its log is not as Inspect writes it.
        """
        from control_tower.logs.archive import EvalArchive, SampleKey
        from control_tower.logs.bundles import bundle_around

        key = SampleKey.of_member(found.range["samplePath"])
        assert key is not None

        def around() -> tuple[bytes, bytes]:
            try:
                with EvalArchive.open(Named(self._blobs.source(found.blob), name)) as archive:
                    return bundle_around(archive, key)
            except ValidationError as error:
                raise StateError(f"the trajectory cannot be a log of its own: {error}") from None

        before, after = await self._pool.run(around)
        where = found.range
        stored = Stored(self._blobs, found.blob, where["compressedStart"], where["compressedSize"])
        pieces = [Text(before), stored, Text(after)]
        return Content(pieces, _tag(found, "eval"), "application/zip", name)

    async def _small_window(self, stored: Stored) -> bool:
        import zstandard

        start = await _bytes(stored.read(0, min(_FRAME_HEADER, stored.size)))
        try:
            return zstandard.get_frame_parameters(start).window_size <= LARGEST_WINDOW
        except zstandard.ZstdError:
            return False


def _accepted(header: str) -> set[str]:
    """The encodings that an Accept-Encoding header names, those refused with q=0 left out."""
    parts = (part.strip().lower() for part in header.split(","))
    return {part.partition(";")[0].strip() for part in parts if not re.search(r";\s*q=0(\.0*)?$", part)}


def _tag(found: StoredSample, form: str) -> str:
    text = "\0".join([found.sha256, found.range["samplePath"], form])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


async def _bytes(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])
