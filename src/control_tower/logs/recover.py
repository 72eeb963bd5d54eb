"""A torn log made whole: what is sound is copied, what stood about it is worked out anew."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pydantic

from control_tower import inspect_private
from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import DERIVED, HEADER, REDUCTIONS, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.attempts import RECOVERED, expected_samples
from control_tower.logs.json_text import JsonObject, child, dumps
from control_tower.logs.results import compute_results, stats_of
from control_tower.logs.zip_reader import WAY_OUT, Damage, DamagedArchive
from control_tower.logs.zip_writer import new_archive

_JOURNAL = "_journal/"
_SAMPLES = "samples/"


@dataclass(frozen=True)
class Recovered:
    """What was kept of a log."""

    output: Path | None
    """The new log; None when there was nothing to recover."""
    status: str
    samples: tuple[SampleKey, ...]
    missing: tuple[SampleKey, ...]
    """Samples that the run has and the log lacks, lost or never played."""
    damage: tuple[Damage, ...]
    uncomputed: tuple[str, ...]
    """Scorers without results, since their metrics are not installed here."""


def recovered_path(log: Path) -> Path:
    """Where the recovered log belongs: beside the damaged one."""
    return log.with_name(f"{log.stem}-recovered.eval")


def recover(log: Path, output: Path | None = None, *, header_of: Path | None = None) -> Recovered:
    """Writes what is sound of a log as a log that every reader opens; the log itself is not touched.

    Samples are copied as they are. Of a log that lost its header or a sample the status becomes "error" and
    results are worked out from the samples that are left. The header's metadata says under `recovered`
    what was damaged. A log that is whole is left alone.

    Args:
        log: The damaged log, or one whose run was killed.
        output: Where to; None is `recovered_path`. Nothing may be there.
        header_of: A log of the same run, whose header is taken where this one has none.

    Raises:
        StateError: There is no such log, it is still being written, or something is at `output` already.
        DamagedArchive: Nothing of it can be kept.
        ValidationError: `header_of` is of another run, or the samples are not those of the header.
        OperationError: It cannot be written; nothing was.
    """
    target = output or recovered_path(log)
    if target.exists():
        raise StateError(f"{target}: is there already; remove it, or name another output")
    if process := inspect_private.writing_process(log):
        raise StateError(f"{log}: process {process} is still running it; wait for it, or end it first")
    with open_sound(log) as archive:
        rows = _summaries(archive)
        finished = archive.finished
        header = _header(archive, header_of)
        expected = {SampleKey(str(id), epoch): None for id, epoch in expected_samples(header)}
        if strangers := [key for key in rows if expected and key not in expected]:
            raise ValidationError(f"{log}: its header does not know sample {strangers[0]}, which it holds")
        missing = tuple(key for key in expected if key not in rows)
        status = str(header.get("status"))
        if finished and not archive.damage:
            return Recovered(None, status, tuple(rows), missing, (), ())
        uncomputed: tuple[str, ...] = ()
        reductions: list[JsonObject] | None = None
        damaged = {found.member for found in archive.damage}
        lost = not finished or any(map(_may_be_a_sample, archive.damage))
        if lost or REDUCTIONS in damaged:
            computed = compute_results(header, list(rows.values()), len(expected) or len(rows))
            reductions, uncomputed = computed.reductions, computed.uncomputed
            if lost:
                status = "error"
                stats = child(header, "stats") or stats_of(list(rows.values()))
                error = _error(archive, len(rows), len(missing))
                header = {**header, "results": computed.results, "stats": stats, "error": error}
        header = _noted(header, archive, status)
        with new_archive(target) as writer:
            writer.add(
                START, dumps({key: header[key] for key in ("version", "eval", "plan") if key in header})
            )
            for name in _copied(archive, reductions is None):
                writer.copy(archive.members, name)
            writer.add(SUMMARIES, dumps(list(rows.values())))
            if reductions is not None:
                writer.add(REDUCTIONS, dumps(reductions))
            writer.add(HEADER, dumps(header))
        return Recovered(target, status, tuple(rows), missing, archive.damage, uncomputed)


def open_sound(log: Path) -> EvalArchive:
    """A log with its sound members only: each was read to its end; the others are in `damage`.

    Raises:
        StateError: There is no such file.
        DamagedArchive: It holds no sound member.
    """
    try:
        archive = EvalArchive.open(log)
    except DamagedArchive as error:
        archive = EvalArchive.salvage(log)
        if not archive.members.members:
            archive.close()
            raise
        directory = Damage(None, None, error.damage.removesuffix(f"; {WAY_OUT}"))
        archive.members.damage = (directory, *archive.damage)
    for name in list(archive.members.members):
        if damage := _unsound(archive, name):
            archive.members.drop(name, damage)
    return archive


def _may_be_a_sample(found: Damage) -> bool:
    if found.member is None:
        return found.offset is not None
    return found.member.startswith(_SAMPLES)


def _unsound(archive: EvalArchive, name: str) -> str | None:
    """What is wrong with a member, if anything is."""
    try:
        if not name.endswith(".json"):
            archive.verify(name)
            return None
        value = archive.json(name)
    except DamagedArchive as error:
        return error.damage
    if name in (HEADER, START) and not (isinstance(value, dict) and child(cast(JsonObject, value), "eval")):
        return "it has no `eval` object"
    if not name.startswith(_SAMPLES):
        return None
    try:
        key = SampleKey.of(cast(JsonObject, value))
    except (AttributeError, KeyError, TypeError, ValueError):
        return "it is a part of a sample, or none" if name.count("/") > 1 else "it is not a sample"
    return None if key.member == name else f"it holds another sample, {key}"


def _summaries(archive: EvalArchive) -> dict[SampleKey, JsonObject]:
    """The summary of each sound sample, in the order recorded, made anew where there is none."""
    try:
        recorded = {SampleKey.of(row): row for row in archive.summaries()}
    except DamagedArchive:
        recorded = {}
    keys = dict.fromkeys(archive.sample_keys())
    rows = {key: recorded[key] for key in recorded if key in keys}
    for key in keys:
        if key not in rows:
            try:
                rows[key] = inspect_private.sample_summary(archive.sample(key))
            except pydantic.ValidationError as error:
                archive.members.drop(key.member, f"Inspect cannot read it: {error.errors()[0]['msg']}")
    damaged = {found.member for found in archive.damage}
    for key in recorded:
        if key not in keys and key.member not in damaged:
            archive.members.damage += (Damage(key.member, None, "it has a summary, but is not there"),)
    return rows


def _header(archive: EvalArchive, header_of: Path | None) -> JsonObject:
    try:
        header = archive.header()
    except DamagedArchive as error:
        if header_of is None:
            count = len(archive.sample_keys())
            raise DamagedArchive(
                archive.name,
                None,
                f"{error.damage}; {count} of its samples are sound: give a log of the same run whose header"
                " to take (--header-of)",
            ) from None
        with EvalArchive.open(header_of) as other:
            given = other.header()
        header = {"status": "started", **{k: given[k] for k in ("version", "eval", "plan") if k in given}}
    return {key: value for key, value in header.items() if key not in DERIVED}


def _error(archive: EvalArchive, kept: int, missing: int) -> JsonObject:
    text = f"recovered from {Path(archive.name).name}: {kept} samples kept, {missing} missing"
    return {"message": text, "traceback": text, "traceback_ansi": text}


def _noted(header: JsonObject, archive: EvalArchive, status: str) -> JsonObject:
    """The header with what became of the log; its new id tells the recovered log from the damaged one."""
    spec = header["eval"]
    before = str(spec.get("eval_id") or Path(archive.name).stem)
    note = {
        "log": Path(archive.name).name,
        "eval_id": before,
        "status": header.get("status"),
        "damage": [
            {"member": found.member, "offset": found.offset, "damage": found.damage}
            for found in archive.damage
        ],
    }
    noted = {
        **spec,
        "eval_id": hashlib.sha256(f"recovered:{before}".encode()).hexdigest()[:32],
        "metadata": {**child(spec, "metadata"), RECOVERED: note},
    }
    return {**header, "status": status, "eval": noted}


def _copied(archive: EvalArchive, with_reductions: bool) -> Iterator[str]:
    """The members that stay as they are: samples, and what we do not know."""
    made_anew = {HEADER, SUMMARIES, *(() if with_reductions else (REDUCTIONS,))}
    for name in archive.members.members:
        if name not in made_anew and not name.startswith(_JOURNAL):
            yield name
