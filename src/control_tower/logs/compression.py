"""Compressed bytes to plain ones and back, never more at a time than asked for."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import IO, cast

import zstandard

from control_tower.logs.zip_records import DEFLATE, STORED, ZSTD

CHUNK = 256 * 1024
LEVEL = 3
MAX_WINDOW = 128 * 1024 * 1024
FRAME_INPUT = 200 * 1024 * 1024
"""Plain bytes a zstd frame may hold: the decoder of Inspect's viewer fails on frames of 256 MiB and more."""


class BadData(ValueError):
    """The compressed bytes are damaged; the text says how."""


def decompress(method: int, compressed: Iterable[bytes]) -> Iterator[bytes]:
    """The plain bytes, in parts of at most `CHUNK`, so a bomb costs only what the caller takes.

    A stream that ends early gives fewer bytes; the caller knows how many there should be.

    Raises:
        BadData: The bytes are damaged.
        KeyError: The method is none of stored, deflate and zstd.
    """
    return {STORED: _stored, DEFLATE: _inflate, ZSTD: _unzstd}[method](compressed)


def compress(data: bytes) -> bytes:
    """`data` as zstd frames; equal input gives equal output."""
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    frames = [compressor.compress(data[at : at + FRAME_INPUT]) for at in range(0, len(data), FRAME_INPUT)]
    return b"".join(frames) if frames else compressor.compress(b"")


def _stored(compressed: Iterable[bytes]) -> Iterator[bytes]:
    yield from compressed


def _inflate(compressed: Iterable[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for part in compressed:
        pending = part
        while pending and not inflater.eof:
            try:
                plain = inflater.decompress(pending, CHUNK)
            except zlib.error as error:
                raise BadData(f"its deflate stream is damaged ({error})") from None
            pending = inflater.unconsumed_tail
            if plain:
                yield plain
    if inflater.unused_data:
        raise BadData("bytes follow its deflate stream")
    if rest := inflater.flush():
        yield rest


def _unzstd(compressed: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    parts = cast("IO[bytes]", _Parts(compressed))
    reader = decompressor.stream_reader(parts, read_size=CHUNK, read_across_frames=True)
    while True:
        try:
            plain = reader.read(CHUNK)
        except zstandard.ZstdError as error:
            raise BadData(f"its zstd stream is damaged ({error})") from None
        if not plain:
            return
        yield plain


class _Parts:
    """An iterable of bytes as something to `read` from."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return b""
            self._rest = part
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
