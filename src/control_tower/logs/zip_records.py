"""The records of a zip file, to and from bytes: local headers, the central directory and its end."""

from __future__ import annotations

import struct
from typing import NamedTuple

STORED, DEFLATE, ZSTD = 0, 8, 93
METHOD_NAMES = {STORED: "stored", DEFLATE: "deflate", ZSTD: "zstd"}

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
END64_SIGNATURE = b"PK\x06\x06"
LOCATOR64_SIGNATURE = b"PK\x06\x07"

LOCAL_SIZE, END_SIZE, END64_SIZE, LOCATOR64_SIZE = 30, 22, 56, 20
MAX_COMMENT = 0xFFFF

ENCRYPTED, DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800

_LOCAL = struct.Struct("<4sHHHIIIIHH")
_CENTRAL = struct.Struct("<4sHHHHIIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<4sIQI")

_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_FILE_MODE = 0o600 << 16
_VERSION = {STORED: 20, DEFLATE: 20, ZSTD: 63}


class BadRecord(ValueError):
    """These bytes are not the record they should be; the text says why."""


class Entry(NamedTuple):
    """One member as the directory (or its local header) describes it.

    `stamp` is the DOS time and date as stored; `offset` is where its local header begins.
    """

    name: str
    method: int
    flags: int
    stamp: int
    crc: int
    compressed_size: int
    size: int
    offset: int


class LocalHeader(NamedTuple):
    """A local header: the entry it describes and how many bytes stand before the data."""

    entry: Entry
    length: int


class DirectoryEnd(NamedTuple):
    """Where the central directory begins, its length in bytes and its number of entries."""

    offset: int
    length: int
    entries: int


def parse_directory(data: bytes, count: int) -> list[Entry]:
    """All `count` entries of a central directory.

    Raises:
        BadRecord: It holds more or fewer entries, or one cannot be read.
    """
    entries: list[Entry] = []
    position = 0
    while position < len(data) and len(entries) <= count:
        if data[position : position + 4] != CENTRAL_SIGNATURE or position + _CENTRAL.size > len(data):
            raise BadRecord(f"entry {len(entries)} of the directory is damaged")
        fields = _CENTRAL.unpack_from(data, position)
        flags, method, stamp, crc, compressed, size = fields[3:9]
        name_length, extra_length, comment_length, disk, _, _, offset = fields[9:16]
        start = position + _CENTRAL.size
        position = start + name_length + extra_length + comment_length
        if position > len(data):
            raise BadRecord(f"entry {len(entries)} of the directory is cut off")
        name = decode_name(data[start : start + name_length], flags)
        extra = data[start + name_length : start + name_length + extra_length]
        size, compressed, offset = _from_zip64(extra, name, (size, compressed, offset))
        if disk not in (0, _FULL16):
            raise BadRecord(f"member {name!r} is on another disk")
        entries.append(Entry(name, method, flags, stamp, crc, compressed, size, offset))
    if len(entries) != count:
        raise BadRecord(f"the directory holds {len(entries)} entries but says {count}")
    return entries


def parse_local(data: bytes, offset: int) -> LocalHeader:
    """The local header at the start of `data`, which is the archive's bytes from `offset`.

    Raises:
        BadRecord: There is none, or `data` ends within it.
    """
    if len(data) < LOCAL_SIZE or data[:4] != LOCAL_SIGNATURE:
        raise BadRecord("there is no member where the directory says")
    _, _, flags, method, stamp, crc, compressed, size, name_length, extra_length = _LOCAL.unpack_from(data)
    length = LOCAL_SIZE + name_length + extra_length
    if len(data) < length:
        raise BadRecord("its local header is cut off")
    name = decode_name(data[LOCAL_SIZE : LOCAL_SIZE + name_length], flags)
    extra = data[LOCAL_SIZE + name_length : length]
    size, compressed, _ = _from_zip64(extra, name, (size, compressed, 0))
    return LocalHeader(Entry(name, method, flags, stamp, crc, compressed, size, offset), length)


def local_length(data: bytes) -> int:
    """How long the local header is whose first 30 bytes are `data`."""
    if len(data) < LOCAL_SIZE or data[:4] != LOCAL_SIGNATURE:
        raise BadRecord("there is no member where the directory says")
    name_length, extra_length = struct.unpack_from("<HH", data, 26)
    return LOCAL_SIZE + name_length + extra_length


def find_end(tail: bytes, tail_offset: int) -> tuple[int, DirectoryEnd]:
    """The end record that closes `tail`, the last bytes of the archive from `tail_offset` on.

    Returns:
        Its position in the archive and what it says. Values of 0xFFFF.. mean: see the zip64 record.

    Raises:
        BadRecord: The archive does not end with one.
    """
    position = len(tail)
    while (position := tail.rfind(END_SIGNATURE, 0, position)) >= 0:
        if position + END_SIZE <= len(tail):
            _, disk, start_disk, here, entries, length, offset, comment = _END.unpack_from(tail, position)
            if position + END_SIZE + comment == len(tail):
                if disk or start_disk or here != entries:
                    raise BadRecord("it is one part of an archive in several parts")
                return tail_offset + position, DirectoryEnd(offset, length, entries)
    raise BadRecord("it does not end with a directory")


def is_zip64(end: DirectoryEnd) -> bool:
    """Whether the real values stand in the zip64 records before the end record."""
    return end.entries == _FULL16 or end.length == _FULL32 or end.offset == _FULL32


def parse_locator64(data: bytes) -> int:
    """Where the zip64 end record stands.

    Raises:
        BadRecord: `data` is no locator.
    """
    if len(data) != LOCATOR64_SIZE or data[:4] != LOCATOR64_SIGNATURE:
        raise BadRecord("its zip64 records are missing")
    return _LOCATOR64.unpack(data)[2]


def parse_end64(data: bytes) -> DirectoryEnd:
    """What the zip64 end record says.

    Raises:
        BadRecord: `data` is no such record.
    """
    if len(data) != END64_SIZE or data[:4] != END64_SIGNATURE:
        raise BadRecord("its zip64 records are damaged")
    _, _, _, _, disk, start_disk, here, entries, length, offset = _END64.unpack(data)
    if disk or start_disk or here != entries:
        raise BadRecord("it is one part of an archive in several parts")
    return DirectoryEnd(offset, length, entries)


def decode_name(raw: bytes, flags: int) -> str:
    """A member's name as text.

    Raises:
        BadRecord: It claims to be UTF-8 and is not.
    """
    try:
        return raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadRecord(f"a member's name {raw!r} is not UTF-8") from None


def local_bytes(entry: Entry) -> bytes:
    """The local header of a member whose sizes are known before its data."""
    name = entry.name.encode("utf-8")
    extra = b""
    sizes = (entry.compressed_size, entry.size)
    if max(sizes) >= _FULL32:
        extra = struct.pack("<HHQQ", 1, 16, entry.size, entry.compressed_size)
        sizes = (_FULL32, _FULL32)
    version = max(_VERSION[entry.method], 45 if extra else 20)
    fields = (version, entry.flags, entry.method, entry.stamp, entry.crc, *sizes, len(name), len(extra))
    header = _LOCAL.pack(LOCAL_SIGNATURE, *fields)
    return header + name + extra


def central_bytes(entry: Entry) -> bytes:
    """The directory's record of a member."""
    name = entry.name.encode("utf-8")
    large: list[int] = []
    fields: list[int] = []
    for value in (entry.size, entry.compressed_size, entry.offset):
        large += [value] if value >= _FULL32 else []
        fields.append(min(value, _FULL32))
    size, compressed, offset = fields
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    version = max(_VERSION[entry.method], 45 if extra else 20)
    header = _CENTRAL.pack(
        CENTRAL_SIGNATURE,
        3 << 8 | version,
        version,
        entry.flags,
        entry.method,
        entry.stamp,
        entry.crc,
        compressed,
        size,
        len(name),
        len(extra),
        0,
        0,
        0,
        _FILE_MODE,
        offset,
    )
    return header + name + extra


def end_bytes(offset: int, length: int, entries: int) -> bytes:
    """The records that close an archive whose directory is `length` bytes from `offset`."""
    closing = b""
    if entries >= _FULL16 or length >= _FULL32 or offset >= _FULL32:
        end64 = (END64_SIGNATURE, END64_SIZE - 12, 45, 45, 0, 0, entries, entries, length, offset)
        closing = _END64.pack(*end64) + _LOCATOR64.pack(LOCATOR64_SIGNATURE, 0, offset + length, 1)
    shown = min(entries, _FULL16)
    return closing + _END.pack(
        END_SIGNATURE, 0, 0, shown, shown, min(length, _FULL32), min(offset, _FULL32), 0
    )


def _from_zip64(extra: bytes, name: str, values: tuple[int, int, int]) -> tuple[int, int, int]:
    """(size, compressed size, offset) with those that are 0xFFFFFFFF read from the zip64 extra field."""
    if _FULL32 not in values:
        return values
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        field = extra[position + 4 : position + 4 + length]
        if kind == 1:
            if len(field) < 8 * values.count(_FULL32):
                raise BadRecord(f"the zip64 sizes of member {name!r} are cut off")
            large = iter(struct.unpack_from(f"<{len(field) // 8}Q", field))
            size, compressed, offset = (next(large) if value == _FULL32 else value for value in values)
            return size, compressed, offset
        position += 4 + length
    return values
