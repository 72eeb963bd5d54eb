"""Members of a zip archive that may be hostile, torn or huge: checked, bounded, one at a time."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from control_tower.errors import ValidationError
from control_tower.logs.compression import CHUNK, BadData, decompress
from control_tower.logs.zip_records import (
    CENTRAL_SIGNATURE,
    DESCRIPTOR,
    ENCRYPTED,
    END64_SIZE,
    END_SIGNATURE,
    END_SIZE,
    LOCAL_SIGNATURE,
    LOCAL_SIZE,
    LOCATOR64_SIZE,
    MAX_COMMENT,
    METHOD_NAMES,
    STORED,
    UTF8,
    BadRecord,
    Entry,
    find_end,
    is_zip64,
    local_length,
    parse_directory,
    parse_end64,
    parse_local,
    parse_locator64,
)
from control_tower.storage.source import ByteSource

WAY_OUT = "`ct logs recover` keeps what is sound"


class DamagedArchive(ValidationError):
    """The archive cannot be trusted: `member` (None: the archive itself) and `damage` say where and how.

    `offset` is the byte at which the member begins, where it is known.
    """

    def __init__(self, archive: str, member: str | None, damage: str, offset: int | None = None) -> None:
        self.archive = archive
        self.member = member
        self.damage = damage
        self.offset = offset
        where = archive if member is None else f"{archive}: member {member!r}"
        way_out = "" if offset is None else f" (it begins at byte {offset}); {WAY_OUT}"
        super().__init__(f"{where}: {damage}{way_out}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may cost before it is refused.

    `members` and `directory_bytes` bound the directory, `member_bytes` the uncompressed size of one member,
    `salvage_bytes` what may be decompressed while looking for members without a directory.
    """

    members: int = 100_000
    directory_bytes: int = 64 * 1024**2
    member_bytes: int = 1024**3
    salvage_bytes: int = 64 * 1024**3


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not sound: the member's name when known, where it begins, what is wrong.

    Without a position it is the directory, or a member that is not there at all.
    """

    member: str | None
    offset: int | None
    damage: str

    def __str__(self) -> str:
        where = "the archive" if self.member is None else f"member {self.member!r}"
        return f"{where}{'' if self.offset is None else f' at byte {self.offset}'}: {self.damage}"


class ZipReader:
    """The members of one archive by name; of several with one name the last counts."""

    def __init__(self, source: ByteSource, entries: Iterable[Entry], data_end: int, limits: Limits) -> None:
        """From a checked list of entries; use `open` or `salvage`.

        `data_end` is where the members end and the directory begins.
        """
        self.source = source
        self.limits = limits
        self.damage: tuple[Damage, ...] = ()
        self._offsets = sorted([entry.offset for entry in entries] + [data_end])
        self.members = {entry.name: entry for entry in entries}

    @classmethod
    def open(cls, source: ByteSource, limits: Limits | None = None) -> ZipReader:
        """Reads and checks the directory; members are read when asked for.

        Raises:
            DamagedArchive: It is no archive, is cut off, exceeds a limit, or contradicts itself.
        """
        limits = limits or Limits()
        try:
            entries, data_end = _read_directory(source, limits)
        except BadRecord as error:
            raise DamagedArchive(source.name, None, str(error)) from None
        for entry in entries:
            _check_entry(source.name, entry, data_end, limits)
        _check_overlaps(source.name, entries)
        return cls(source, entries, data_end, limits)

    @classmethod
    def salvage(cls, source: ByteSource, limits: Limits | None = None) -> ZipReader:
        """Looks for members without the directory, and keeps those that decompress to what they say.

        What could not be kept is listed in `damage`. Nothing found is not an error here.

        Raises:
            DamagedArchive: The search would exceed a limit.
        """
        limits = limits or Limits()
        entries, damage = _scan(source, limits)
        reader = cls(source, entries, source.size, limits)
        reader.damage = tuple(damage)
        return reader

    def read(self, name: str) -> bytes:
        """The plain bytes of a member, checked against its size and checksum.

        Raises:
            KeyError: There is no such member.
            DamagedArchive: It is damaged, or larger than `Limits.member_bytes`.
        """
        return b"".join(self.stream(self.members[name]))

    def stream(self, entry: Entry) -> Iterator[bytes]:
        """The plain bytes of a member in parts; the checks of `read` happen on the way and at the end."""
        if entry.size > self.limits.member_bytes:
            raise self._damaged(
                entry, f"unpacks to {entry.size} bytes; at most {self.limits.member_bytes} are read"
            )
        length = checksum = 0
        try:
            for part in decompress(entry.method, self.raw(entry)):
                length += len(part)
                if length > entry.size:
                    raise self._damaged(entry, f"unpacks to more than the {entry.size} bytes it says")
                checksum = zlib.crc32(part, checksum)
                yield part
        except BadData as error:
            raise self._damaged(entry, str(error)) from None
        if length != entry.size:
            raise self._damaged(entry, f"unpacks to {length} bytes, not the {entry.size} it says")
        if checksum != entry.crc:
            raise self._damaged(entry, "its checksum is wrong")

    def raw(self, entry: Entry) -> Iterator[bytes]:
        """The compressed bytes of a member in parts, unchecked but for its local header.

        Raises:
            DamagedArchive: Its local header contradicts the directory.
        """
        start = self.data_offset(entry)
        end = start + entry.compressed_size
        return (self.source.read_at(at, min(CHUNK, end - at)) for at in range(start, end, CHUNK))

    def data_offset(self, entry: Entry) -> int:
        """Where the compressed bytes of a member begin.

        Raises:
            DamagedArchive: Its local header contradicts the directory, or its data runs into the next member.
        """
        if entry.method not in METHOD_NAMES:
            raise self._damaged(
                entry, f"compression method {entry.method} is unknown (known: stored, deflate, zstd)"
            )
        try:
            length = local_length(self.source.read_at(entry.offset, LOCAL_SIZE))
            if entry.offset + length > self.source.size:
                raise BadRecord("its local header is cut off")
            local = parse_local(self.source.read_at(entry.offset, length), entry.offset).entry
        except BadRecord as error:
            raise self._damaged(entry, str(error)) from None
        if (local.name, local.method) != (entry.name, entry.method):
            raise self._damaged(
                entry,
                f"its local header says something else than the directory ({local.name!r}, {local.method})",
            )
        limit = self._offsets[bisect_right(self._offsets, entry.offset)]
        if entry.offset + length + entry.compressed_size > limit:
            raise self._damaged(entry, "it overlaps what follows it")
        return entry.offset + length

    def data_start(self, entry: Entry) -> int:
        """As `data_offset`, without a read where the bytes up to the next member leave only one answer."""
        name = entry.name.encode("utf-8" if entry.flags & UTF8 else "cp437")
        start = entry.offset + LOCAL_SIZE + len(name)
        following = self._offsets[bisect_right(self._offsets, entry.offset)]
        return start if start + entry.compressed_size == following else self.data_offset(entry)

    def drop(self, name: str, damage: str) -> None:
        """Takes a member out and lists it in `damage`.

        Raises:
            KeyError: There is no such member.
        """
        entry = self.members.pop(name)
        self.damage += (Damage(name, entry.offset, damage),)

    def close(self) -> None:
        """Closes the source."""
        self.source.close()

    def _damaged(self, entry: Entry, damage: str) -> DamagedArchive:
        return DamagedArchive(self.source.name, entry.name, damage, entry.offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_directory(source: ByteSource, limits: Limits) -> tuple[list[Entry], int]:
    start = source.read_at(0, min(4, source.size))
    if source.size < END_SIZE or start not in (LOCAL_SIGNATURE, END_SIGNATURE):
        raise BadRecord(_what_it_is(start, source.size))
    tail_length = min(source.size, END_SIZE + MAX_COMMENT)
    tail = source.read_at(source.size - tail_length, tail_length)
    try:
        position, end = find_end(tail, source.size - tail_length)
    except BadRecord as error:
        raise BadRecord(f"{error}: it is cut off, or still being copied; {WAY_OUT}") from None
    directory_end = position
    if is_zip64(end) and position >= LOCATOR64_SIZE:
        locator = source.read_at(position - LOCATOR64_SIZE, LOCATOR64_SIZE)
        directory_end = parse_locator64(locator)
        if directory_end + END64_SIZE + LOCATOR64_SIZE != position:
            raise BadRecord("its zip64 records are not where they should be")
        end = parse_end64(source.read_at(directory_end, END64_SIZE))
    if end.offset + end.length != directory_end:
        raise BadRecord("its directory is not where it should be: bytes are missing or were added")
    if end.entries > limits.members:
        raise BadRecord(f"it holds {end.entries} members; at most {limits.members} are read")
    if end.length > limits.directory_bytes:
        raise BadRecord(f"its directory takes {end.length} bytes; at most {limits.directory_bytes} are read")
    return parse_directory(source.read_at(end.offset, end.length), end.entries), end.offset


def _what_it_is(start: bytes, size: int) -> str:
    if size == 0:
        return "it is empty"
    if start[:1] in (b"{", b"["):
        return "it is JSON, not an .eval archive; `inspect log convert --to eval` makes one of it"
    if start == LOCAL_SIGNATURE:
        return "it is cut off, or still being copied"
    return "it is not an .eval archive"


def _check_entry(archive: str, entry: Entry, data_end: int, limits: Limits) -> None:
    parts = entry.name.replace("\\", "/").split("/")
    if not entry.name or "\0" in entry.name or parts[0] == "" or ".." in parts:
        raise DamagedArchive(archive, entry.name, "such a name would leave the archive")
    if entry.flags & ENCRYPTED:
        raise DamagedArchive(archive, entry.name, "it is encrypted")
    if entry.offset + LOCAL_SIZE + len(entry.name) + entry.compressed_size > data_end:
        raise DamagedArchive(archive, entry.name, "it reaches beyond the archive's members")
    if entry.method == STORED and entry.compressed_size != entry.size:
        raise DamagedArchive(archive, entry.name, "it is stored, but its two sizes differ")


def _check_overlaps(archive: str, entries: list[Entry]) -> None:
    end, before = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset < end:
            raise DamagedArchive(archive, entry.name, f"it overlaps member {before!r}")
        end = entry.offset + LOCAL_SIZE + len(entry.name) + entry.compressed_size
        before = entry.name


def _scan(source: ByteSource, limits: Limits) -> tuple[list[Entry], list[Damage]]:
    """The sound members in the order they stand, found by their local headers."""
    entries: list[Entry] = []
    damage: list[Damage] = []
    budget = [limits.salvage_bytes, 4 * source.size + CHUNK]
    position = _find_local(source, 0)
    while position is not None:
        found = _local_at(source, position)
        if isinstance(found, str):
            damage.append(Damage(None, position, found))
        else:
            entry, data = found
            error = _verify(source, entry, data, limits, budget)
            if error is None:
                entries.append(entry)
                position = _find_local(source, data + entry.compressed_size)
                continue
            damage.append(Damage(entry.name, position, error))
        if len(damage) + len(entries) > limits.members or min(budget) < 0:
            raise DamagedArchive(source.name, None, "too damaged to look for members in it")
        position = _find_local(source, position + 4)
    return entries, damage


def _local_at(source: ByteSource, position: int) -> tuple[Entry, int] | str:
    try:
        length = local_length(source.read_at(position, min(LOCAL_SIZE, source.size - position)))
        header = parse_local(source.read_at(position, min(length, source.size - position)), position)
    except BadRecord as error:
        return str(error)
    return header.entry, position + header.length


def _verify(source: ByteSource, entry: Entry, data: int, limits: Limits, budget: list[int]) -> str | None:
    """What is wrong with the member whose data begins at `data`, or None; its cost is taken from `budget`."""
    if entry.flags & DESCRIPTOR:
        return "its size stands behind its data"
    if data + entry.compressed_size > source.size:
        return "it is cut off"
    if entry.method not in METHOD_NAMES:
        return f"compression method {entry.method} is unknown"
    budget[1] -= entry.compressed_size
    reader = ZipReader(source, [entry], data + entry.compressed_size, limits)
    try:
        _check_entry(source.name, entry, source.size, limits)
        for part in reader.stream(entry):
            budget[0] -= len(part)
            if min(budget) < 0:
                return "too much was read already"
    except DamagedArchive as error:
        return error.damage
    return None


def _find_local(source: ByteSource, position: int) -> int | None:
    """The next local header at or after `position`; None at the directory and at the archive's end."""
    if source.read_at(position, min(4, source.size - position)) in (CENTRAL_SIGNATURE, END_SIGNATURE):
        return None
    while position + 4 <= source.size:
        window = source.read_at(position, min(CHUNK, source.size - position))
        found = window.find(LOCAL_SIGNATURE)
        if found >= 0:
            return position + found
        position += max(len(window) - 3, 1)
    return None
