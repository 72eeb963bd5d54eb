"""What an uploaded log says of itself, by three range reads; refused when it cannot become a run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from control_tower.agent_runs.errors import BadRequest, NotFound
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.verdicts import Verdicts, verdicts_of
from control_tower.conversion.version import Age, age_of
from control_tower.errors import ValidationError
from control_tower.logs.archive import HEADER, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.json_text import BadJson, JsonObject, loads_lenient, objects_in
from control_tower.logs.zip_reader import DamagedArchive, Limits
from control_tower.logs.zip_records import METHOD_NAMES, Entry
from control_tower.storage.blobs import Blob, blob_key
from control_tower.storage.source import ByteSource

LIMITS = Limits(members=200_000, directory_bytes=64 * 1024**2, member_bytes=8 * 1024**3)
"""What an archive may cost."""

RATIO = 2000
"""How many times smaller than plain a compressed member may be, beyond a MiB."""

HEADER_BYTES = 32 * 1024**2
SUMMARIES_BYTES = 128 * 1024**2
ROW_LENGTH = 16 * 1024**2
"""Characters of one sample's summary."""

CONTAINERS = 2_000_000
"""Objects and lists in the header."""

SERIES_BYTES = 64 * 1024**2
"""What the scores of all samples' actions may take."""

INSPECTED_KEPT = 2

RECOVER = "recover it first: `ct logs recover`"


@dataclass(frozen=True)
class Member:
    """A sample in the archive."""

    key: SampleKey
    position: int
    """In the order of the summaries, from 0."""
    entry: Entry
    start: int
    """Where its compressed bytes begin."""
    verdicts: Verdicts


@dataclass(frozen=True)
class ArchiveFacts:
    """What is known of a log without reading its samples."""

    sha256: str
    blob: Blob
    header: JsonObject
    samples: Mapping[SampleKey, Member]


async def inspect_archive(site: Site, sha256: str) -> ArchiveFacts:
    """Looks at an uploaded log.

    Args:
        site: Where it was uploaded to.
        sha256: Its digest.

    Raises:
        NotFound: It was not uploaded.
        BadRequest: It is refused; the message says why and what to do.
        OperationError: It cannot be read.
    """
    blob = await site.blobs.head(blob_key(sha256))
    if blob is None:
        raise NotFound(f"there is no log with the SHA-256 {sha256}; upload it first")
    known = site.inspected.get(sha256)
    if known is None or known.blob != blob:
        known = await asyncio.to_thread(_inspect, site.blobs.source(blob), blob, sha256)
        # Batches of one log come one after the other.
        site.inspected[sha256] = known
        if len(site.inspected) > INSPECTED_KEPT:
            site.inspected.pop(next(iter(site.inspected)), None)
    return known


def directory(source: ByteSource) -> list[Entry]:
    """The members of a log.

    Raises:
        BadRequest: It is no sound archive.
    """
    with _open(source) as archive:
        return list(archive.members.members.values())


def _inspect(source: ByteSource, blob: Blob, sha256: str) -> ArchiveFacts:
    with _open(source) as archive:
        for entry in archive.members.members.values():
            _check_member(entry)
        try:
            header = _header(archive)
            members = _members(archive)
        except DamagedArchive as error:
            raise _refused(error) from None
    return ArchiveFacts(sha256, blob, header, members)


def _open(source: ByteSource) -> EvalArchive:
    try:
        return EvalArchive.open(source, LIMITS)
    except DamagedArchive as error:
        raise _refused(error) from None


def _refused(error: DamagedArchive) -> BadRequest:
    return BadRequest(f"{_named(error.member)}: {error.damage}")


def _named(member: str | None) -> str:
    return "the log" if member is None else f"the log's member {member!r}"


def _check_member(entry: Entry) -> None:
    where = _named(entry.name)
    if entry.method not in METHOD_NAMES:
        raise BadRequest(f"{where}: compression method {entry.method} is not stored, deflate or zstd")
    if entry.size > LIMITS.member_bytes:
        raise BadRequest(f"{where}: it unpacks to more than {LIMITS.member_bytes} bytes")
    if entry.size > max(1024**2, RATIO * entry.compressed_size):
        raise BadRequest(f"{where}: it unpacks to more than {RATIO} times its size")


def _header(archive: EvalArchive) -> JsonObject:
    entry = archive.members.members.get(HEADER)
    if entry is None:
        raise BadRequest(f"the log is not finished, since it holds no {HEADER}: {RECOVER}")
    if entry.size > HEADER_BYTES:
        raise BadRequest(f"the log's {HEADER} takes {entry.size} bytes; at most {HEADER_BYTES} are read")
    data = archive.members.read(HEADER)
    if data.count(b"{") + data.count(b"[") > CONTAINERS:
        raise BadRequest(f"the log's {HEADER} holds more than {CONTAINERS} objects and lists")
    try:
        header = loads_lenient(data)
    except BadJson as error:
        raise BadRequest(f"the log's {HEADER}: {error}") from None
    if not isinstance(header, dict) or not isinstance(cast(JsonObject, header).get("eval"), dict):
        raise BadRequest(f"the log's {HEADER} has no object `eval`: it is no Inspect log")
    found = cast(JsonObject, header)
    if found.get("status") == "started":
        raise BadRequest(f"the log is not finished, its status is `started`: {RECOVER}")
    try:
        age = age_of("the log", found)
    except ValidationError as error:
        raise BadRequest(str(error)) from None
    if age is not Age.CURRENT:
        raise BadRequest(f"the log is {age.value}: convert it first with `ct runs convert`")
    return found


def _members(archive: EvalArchive) -> dict[SampleKey, Member]:
    """Every sample that is in the archive, once, as the summaries say it."""
    held = set(archive.sample_keys())
    entry = archive.members.members.get(SUMMARIES)
    if entry is None:
        raise BadRequest(f"the log holds no {SUMMARIES}: {RECOVER}")
    if entry.size > SUMMARIES_BYTES:
        raise BadRequest(f"the log's {SUMMARIES} unpacks to more than {SUMMARIES_BYTES} bytes")
    members: dict[SampleKey, Member] = {}
    series = 0
    try:
        for row in objects_in(archive.members.stream(entry), ROW_LENGTH):
            key = _key(row)
            if key in members:
                raise BadRequest(f"the log has sample {key} twice")
            if key not in held:
                raise BadRequest(f"{SUMMARIES} names sample {key}, which the log does not hold: {RECOVER}")
            member = _member(archive, key, len(members), row)
            series += sum(map(len, member.verdicts.suspicion.series.values()))
            if series > SERIES_BYTES:
                raise BadRequest("the log has verdicts on too many actions")
            members[key] = member
    except BadJson as error:
        raise BadRequest(f"the log's {SUMMARIES}: {error}") from None
    if lacking := held - members.keys():
        raise BadRequest(f"the log's {SUMMARIES} lacks sample {min(lacking)}: {RECOVER}")
    if not members:
        chunked = any(name.startswith("samples/") for name in archive.members.members)
        raise BadRequest(f"the log has no samples{' that are read: they are split into chunks' * chunked}")
    return members


def _key(row: JsonObject) -> SampleKey:
    try:
        return SampleKey.of(row)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadRequest(f"the log's {SUMMARIES} has a row that names no sample") from None


def _member(archive: EvalArchive, key: SampleKey, position: int, row: JsonObject) -> Member:
    entry = archive.members.members[key.member]
    try:
        verdicts = verdicts_of(key, row)
    except ValidationError as error:
        raise BadRequest(f"sample {key}: {error}") from None
    return Member(key, position, entry, archive.members.data_start(entry), verdicts)
