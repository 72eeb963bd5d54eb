"""One sample on its own: as a log that every reader opens, and as a range of an archive's bytes."""

from __future__ import annotations

import hashlib
import re
from io import BytesIO
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from control_tower.errors import StateError, ValidationError, did_you_mean
from control_tower.logs.archive import DERIVED, HEADER, REDUCTIONS, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.attempts import open_readable
from control_tower.logs.json_text import JsonObject, child, children, dumps
from control_tower.logs.results import compute_results, stats_of
from control_tower.logs.zip_writer import ZipWriter, replacing
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import RESERVED_SCORES

BUNDLE_OF = "bundle_of"
"""Header metadata of a bundle: the name and eval id of the log that the sample is of."""


class SampleRange(TypedDict):
    """Where the compressed bytes of a sample stand in a stored archive, as documents name it."""

    key: str
    samplePath: str
    eTag: str
    versionId: NotRequired[str]
    compressionMethod: int
    compressedStart: int
    compressedSize: int
    uncompressedSize: int
    crc32: int


def sample_range(
    archive: EvalArchive, key: SampleKey, *, stored_as: str, e_tag: str, version_id: str | None = None
) -> SampleRange:
    """The bytes of one sample, for readers that fetch no more than these.

    Args:
        archive: The log.
        key: The sample.
        stored_as: The key of the stored object whose bytes are those of `archive`.
        e_tag: Its ETag as the store gives it, with its quotes.
        version_id: Its version, where the store keeps versions.

    Raises:
        ValidationError: The log does not hold the sample.
        DamagedArchive: The sample's local header is damaged.
    """
    entry = archive.members.members[_known(archive, key).member]
    found: SampleRange = {
        "key": stored_as,
        "samplePath": entry.name,
        "eTag": e_tag,
        "compressionMethod": entry.method,
        "compressedStart": archive.members.data_offset(entry),
        "compressedSize": entry.compressed_size,
        "uncompressedSize": entry.size,
        "crc32": entry.crc,
    }
    if version_id is not None:
        found["versionId"] = version_id
    return found


def bundle_path(log: Path, key: SampleKey) -> Path:
    """Where the bundle of a sample belongs: beside the log, named after both."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", key.id)[:100].strip("-") or "sample"
    return log.with_name(f"{log.stem}-{name}{'' if key.epoch == 1 else f'-epoch-{key.epoch}'}.eval")


def bundle(log: Path, key: SampleKey, output: Path | None = None) -> Path:
    """Writes one sample as a log of its own.

    The sample's bytes are copied as they are; the header is that of the log with the dataset, the scorers,
    the results and the usage of this sample only. A bundle is a function of the log.

    Args:
        log: The log, torn or not.
        key: The sample.
        output: Where to; None is `bundle_path`. Nothing may be there.

    Returns:
        The path written.

    Raises:
        StateError: There is no such log, or something is at the output already.
        ValidationError: The log does not hold the sample.
        DamagedArchive: The log or the sample is damaged.
        OperationError: It cannot be written; nothing was.
    """
    target = output or bundle_path(log, key)
    if target.exists():
        raise StateError(f"{target}: is there already; remove it, or name another output")
    with open_readable(log) as archive:
        before, after = bundle_around(archive, key)
        archive.verify(key.member)
        with replacing(target) as file:
            file.write(before)
            for part in archive.members.raw(archive.members.members[key.member]):
                file.write(part)
            file.write(after)
    return target


def bundle_around(archive: EvalArchive, key: SampleKey) -> tuple[bytes, bytes]:
    """What a bundle holds before and behind the compressed bytes of its sample, which itself is not read.

    Raises:
        ValidationError: The log does not hold the sample.
        DamagedArchive: The log is damaged.
    """
    row = _summary(archive, _known(archive, key))
    header = _header(archive, row, key)
    computed = compute_results(header, [row], 1)
    header["results"] = computed.results
    made = BytesIO()
    writer = ZipWriter(made)
    writer.add(START, dumps({part: header[part] for part in ("version", "eval", "plan") if part in header}))
    writer.skip(archive.members.members[key.member])
    gap = made.tell()
    writer.add(SUMMARIES, dumps([row]))
    writer.add(REDUCTIONS, dumps(computed.reductions))
    writer.add(HEADER, dumps(header))
    writer.finish()
    return made.getvalue()[:gap], made.getvalue()[gap:]


def _known(archive: EvalArchive, key: SampleKey) -> SampleKey:
    keys = archive.sample_keys()
    if key in keys:
        return key
    same = [each for each in keys if each.id == key.id]
    hint = f"; it has epochs {', '.join(str(each.epoch) for each in same)}" if same else None
    raise ValidationError(
        f"{archive.name}: there is no sample {key}{hint or did_you_mean(key.id, {each.id for each in keys})}"
    )


def _summary(archive: EvalArchive, key: SampleKey) -> JsonObject:
    from control_tower import inspect_private

    for row in archive.summaries():
        if SampleKey.of(row) == key:
            return row
    return inspect_private.sample_summary(archive.sample(key))


def _header(archive: EvalArchive, row: JsonObject, key: SampleKey) -> JsonObject:
    whole = archive.header()
    spec: JsonObject = dict(whole["eval"])
    eval_id = str(spec.get("eval_id") or Path(archive.name).stem)
    scores = child(row, "scores")
    scorers: list[Any] = [
        scorer for scorer in children(spec, "scorers") if _belongs(str(scorer.get("name")), scores)
    ]
    if scorers:
        spec["scorers"] = scorers
    spec["eval_id"] = hashlib.sha256(f"bundle:{eval_id}:{key.member}".encode()).hexdigest()[:32]
    spec["dataset"] = {**child(spec, "dataset"), "samples": 1, "sample_ids": [row["id"]]}
    origin = {"log": Path(archive.name).name, "eval_id": eval_id}
    spec["metadata"] = {**child(spec, "metadata"), BUNDLE_OF: origin}
    header: JsonObject = {
        key: value for key, value in whole.items() if key not in DERIVED | {"error", "reductions"}
    }
    header |= {"status": "success", "eval": spec, "stats": stats_of([row])}
    if row.get("error"):
        message = {"message": str(row["error"]), "traceback": "", "traceback_ansi": ""}
        header |= {"status": "error", "error": message}
    return header


def _belongs(scorer: str, scores: JsonObject) -> bool:
    """Whether a scorer is kept: it has scored this sample, or scores every sample."""
    return scorer in scores or scorer in RESERVED_SCORES or AUDIT_NAME.fullmatch(scorer) is not None
