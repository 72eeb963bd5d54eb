"""A log of an older format written anew in the current one: a sample at a time, whole or not at all.

The output is a function of the source's bytes and the stream: converting again gives the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_tower.conversion.header import Seen, converted_header, with_results
from control_tower.conversion.notes import Notes
from control_tower.conversion.sample import Source, converted_sample
from control_tower.conversion.scores import side_score_names
from control_tower.conversion.streams import Stream
from control_tower.conversion.tasks import OneIdTwoRoles, task_ids
from control_tower.conversion.version import Age, age_of
from control_tower.errors import StateError, UsageError, ValidationError
from control_tower.logs.archive import DERIVED, HEADER, REDUCTIONS, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, children, dumps
from control_tower.logs.zip_writer import ZipWriter, new_archive
from control_tower.records.scores import RESERVED_SCORES


@dataclass(frozen=True)
class Report:
    """What a conversion did."""

    source: Path
    target: Path
    age: Age
    """Of the source."""
    converted_from: tuple[str, ...]
    """As the header names it."""
    eval_id: str
    """Of the converted log."""
    samples: int
    changes: Mapping[str, int]
    """How often each rule was applied."""
    not_kept: Mapping[str, int]
    """What the current format cannot hold, and how often."""


def age_of_log(path: Path) -> Age:
    """How old a log's format is.

    Raises:
        StateError: There is no such file.
        ValidationError: Its version is newer than this program's, or none.
        DamagedArchive: Its header cannot be read.
    """
    with EvalArchive.open(path) as archive:
        return age_of(str(path), archive.header())


def convert(source: Path, target: Path, stream: Stream | None = None, *, origin: str | None = None) -> Report:
    """Write the current form of an older log; the source stays as it is.

    Args:
        source: The log.
        target: Where to; what is there is replaced.
        stream: To which stream its samples belong; None where the log says it itself.
        origin: What `converted_from` calls the source; None takes its eval id.

    Raises:
        StateError: There is no such file, or its format is current.
        ValidationError: It cannot be converted: the message names the sample and the reason.
        DamagedArchive: It is not readable.
        OperationError: The target cannot be written; what was there is untouched.
    """
    if target.resolve() == source.resolve():
        raise UsageError(f"{target}: is the log itself, which stays as it is")
    with EvalArchive.open(source) as archive:
        header = archive.header()
        age = age_of(str(source), header)
        if age is Age.CURRENT:
            raise StateError(f"{source}: its format is current already")
        keys = ordered_keys(archive)
        _check_complete(archive, keys)
        shared: set[str] = set()
        while True:
            notes = Notes(str(source), origin or str(header["eval"].get("eval_id") or source.stem))
            try:
                with new_archive(target) as writer:
                    made = _write(archive, writer, keys, Source(age, header, stream, shared), notes)
                break
            except OneIdTwoRoles as found:
                shared |= found.ids
    metadata = made["eval"]["metadata"]
    return Report(
        source,
        target,
        age,
        tuple(metadata["converted_from"]),
        str(made["eval"].get("eval_id")),
        len(keys),
        dict(sorted(notes.changes.items())),
        dict(sorted(notes.not_kept.items())),
    )


def ordered_keys(archive: EvalArchive) -> list[SampleKey]:
    """The samples of a log in the order of its summaries, those without one last."""
    order = {SampleKey.of(row): place for place, row in enumerate(archive.summaries())}
    return sorted(archive.sample_keys(), key=lambda key: order.get(key, len(order)))


def summary_of(sample: JsonObject) -> JsonObject:
    """The summary that Inspect keeps of a sample, made without reading its messages and events."""
    from inspect_ai.log import EvalSampleSummary
    from pydantic_core import to_jsonable_python

    limit = child(sample, "limit")
    retries = sample.get("error_retries")
    row: JsonObject = {
        "input": "",
        "target": "",
        **{key: sample[key] for key in _SUMMARISED if sample.get(key) is not None},
        "metadata": child(sample, "metadata"),
        "completed": True,
        "message_count": len(sample.get("messages") or []),
    }
    if sample.get("error"):
        row["error"] = child(sample, "error").get("message")
    if limit:
        row |= {"limit": limit.get("type"), "limit_reason": limit.get("reason")}
    if retries is not None:
        row["retries"] = len(retries)
    return to_jsonable_python(EvalSampleSummary.model_validate(row), exclude_none=True)


_SUMMARISED = (
    *("id", "epoch", "input", "choices", "target", "description", "scores", "model_usage", "role_usage"),
    *("model_fallbacks", "started_at", "completed_at", "total_time", "working_time", "uuid", "turn_count"),
    *("token_limit", "token_limit_type", "token_limit_usage", "message_limit", "time_limit"),
)


def _check_complete(archive: EvalArchive, keys: list[SampleKey]) -> None:
    held = set(keys)
    absent = [key for key in map(SampleKey.of, archive.summaries()) if key not in held]
    if absent and not keys:
        raise ValidationError(f"{archive.name}: holds the header only, not the samples it lists")
    if absent:
        raise ValidationError(
            f"{archive.name}: lists {len(absent)} samples that it does not hold, such as {absent[0]}"
        )


def _write(
    archive: EvalArchive, writer: ZipWriter, keys: list[SampleKey], source: Source, notes: Notes
) -> JsonObject:
    seen = Seen()
    written: set[SampleKey] = set()
    for key in keys:
        sample = converted_sample(archive.sample(key), source, notes)
        _see(sample, seen, source.shared)
        made = SampleKey.of(sample)
        if made in written:
            raise notes.refused(key, "another sample of the log has the same id and epoch")
        written.add(made)
        writer.add(made.member, dumps(sample))
        seen.summaries.append(summary_of(sample))
    if both := (seen.mains.keys() & seen.sides.keys()) - source.shared:
        raise OneIdTwoRoles(both)
    header = source.header
    if source.age is Age.UNVERSIONED:
        from control_tower.conversion.rebuilt_header import rebuilt_header

        header = rebuilt_header(header, seen, source.stream, notes)
    header = converted_header(header, notes)
    old: Any = archive.json(REDUCTIONS) if REDUCTIONS in archive.members.members else []
    header, reductions = with_results(header, seen, children({"old": old}, "old"), notes)
    header = {key: value for key, value in header.items() if key not in DERIVED}
    _copy_rest(archive, writer)
    writer.add(START, dumps({key: header[key] for key in ("version", "eval", "plan") if key in header}))
    writer.add(SUMMARIES, dumps(seen.summaries))
    writer.add(REDUCTIONS, dumps(reductions))
    writer.add(HEADER, dumps(header))
    return header


def _see(sample: JsonObject, seen: Seen, shared: Set[str]) -> None:
    seen.mains.update(dict.fromkeys(task_ids(sample, "main")))
    seen.sides.update(dict.fromkeys(task_ids(sample, "side")))
    scores = child(sample, "scores")
    sides = side_score_names(sample, shared)
    seen.side_scores.update(dict.fromkeys(name for name in sides if name in scores))
    mains = [*task_ids(sample, "main"), "main_task"]
    seen.main_scores.update(
        dict.fromkeys(name for name in mains if name in scores and name not in RESERVED_SCORES)
    )
    seen.scores.update(dict.fromkeys(scores))


def _copy_rest(archive: EvalArchive, writer: ZipWriter) -> None:
    """Members that are neither samples nor about them, such as files that somebody added."""
    samples = {key.member for key in archive.sample_keys()}
    for name in archive.members.members:
        if name not in samples | {HEADER, SUMMARIES, REDUCTIONS} and not name.startswith("_journal/"):
            writer.copy(archive.members, name)
