"""Messages between the host and a machine's inside process: lists of byte strings on a stream socket."""

from __future__ import annotations

import errno
import os
import socket
import struct
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

import anyio

_HEADER = struct.Struct(">QI")
_LENGTH = struct.Struct(">Q")
_CHUNK = 1 << 18
_BLOCK = 512
_KINDS = {b"d": tarfile.DIRTYPE, b"f": tarfile.REGTYPE, b"l": tarfile.SYMTYPE, b"p": tarfile.FIFOTYPE}


class Channel:
    """The host's end of one request; a receive that was cancelled goes on where it stopped."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._received = bytearray()

    @classmethod
    def pair(cls) -> tuple[Channel, int]:
        """A channel, and the file descriptor of its other end, which the caller closes."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs.detach()

    async def send(self, fields: Sequence[bytes]) -> None:
        body = b"".join(_LENGTH.pack(len(field)) + field for field in fields)
        view = memoryview(_HEADER.pack(len(body), len(fields)) + body)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def receive(self, limit: int) -> list[bytes] | None:
        """The next message; None when the other end is closed.

        Raises:
            OSError: the message has more than `limit` bytes, or is no message.
        """
        if not await self._fill(_HEADER.size):
            return None
        size, count = _HEADER.unpack_from(self._received)
        if size > limit or count > limit:
            raise OSError(errno.EMSGSIZE, "an answer from inside the sandbox is too long")
        if not await self._fill(_HEADER.size + size):
            return None
        body = self._take(_HEADER.size + size)[_HEADER.size :]
        return _split(body, count)

    async def receive_bytes(self, most: int) -> bytes:
        """At least one and at most `most` bytes that follow a message; none at the end."""
        await self._fill(1)
        return self._take(min(most, len(self._received)))

    async def _fill(self, size: int) -> bool:
        while len(self._received) < size:
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except ConnectionResetError:
                return False
            if not chunk:
                return False
            self._received += chunk
        return True

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def poll(self) -> bool:
        """Whether something has come, or the other end is closed."""
        with suppress(ConnectionResetError):
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return bool(self._received)
        return True

    def hang_up(self) -> None:
        """Tell the other end to stop; its answer can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def _split(body: bytes, count: int) -> list[bytes]:
    fields: list[bytes] = []
    at = 0
    for _ in range(count):
        if at + _LENGTH.size > len(body):
            raise OSError(errno.EPROTO, "an answer from inside the sandbox is malformed")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        fields.append(body[at : at + length])
        at += length
    return fields


async def receive_tar(channel: Channel, file: BinaryIO, max_bytes: int) -> int | None:
    """Write the entries that an `archive` request sends as a tar; the errno when there is no folder.

    Raises:
        OverflowError: the tar has more than `max_bytes`.
        OSError: the machine went away meanwhile.
    """
    left = max_bytes - 2 * _BLOCK
    while (fields := await channel.receive(1 << 20)) != [b"end"]:
        if fields is None or len(fields) < 2:
            raise OSError(errno.EIO, "the sandbox ended while its files were read")
        if fields[0] == b"error":
            return int(fields[1])
        info = _tar_info(fields)
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        padding = -info.size % _BLOCK
        left -= len(header) + info.size + padding
        if left < 0:
            raise OverflowError(f"the folder has more than {max_bytes} bytes")
        file.write(header)
        missing = info.size
        while missing:
            chunk = await channel.receive_bytes(min(missing, _CHUNK))
            if not chunk:
                raise OSError(errno.EIO, "the sandbox ended while its files were read")
            file.write(chunk)
            missing -= len(chunk)
        file.write(bytes(padding))
    file.write(bytes(2 * _BLOCK))
    return None


def _tar_info(fields: Sequence[bytes]) -> tarfile.TarInfo:
    kind, path, mode, last = fields
    info = tarfile.TarInfo(os.fsdecode(path))
    info.type = _KINDS[kind]
    info.mode = int(mode, 8)
    if kind == b"l":
        info.linkname = os.fsdecode(last)
    else:
        info.size = int(last)
    return info
