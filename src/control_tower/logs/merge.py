"""One log out of the attempts at a run: samples copied as they are, everything about them worked out again.

The output is a function of the attempts: merging the same logs twice gives the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import EvalArchive
from control_tower.logs.attempts import (
    FINGERPRINT,
    RESUMED,
    RESUMES,
    Attempt,
    State,
    open_readable,
    read_attempt,
)
from control_tower.logs.joined import Taken, Union, join
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.results import stats_of
from control_tower.logs.resume import Record, choose
from control_tower.logs.usage import USAGE_KEYS, Usage, added, beyond, usage_of

_RESUMED_STEM = re.compile(r"(?P<stem>.+)-resumed-(?P<times>\d{1,6})")


@dataclass(frozen=True)
class Merged:
    """What a merge made."""

    path: Path
    header: JsonObject
    records: tuple[Record, ...]
    """One for each sample-epoch of the run, with the attempt that it was taken from."""
    uncomputed: tuple[str, ...]
    """Scorers without results, since their metrics are not installed here."""


def merge(logs: Sequence[Path], output: Path) -> Merged:
    """Writes one log of the attempts at a run, oldest first.

    Of each sample-epoch the first finished record is taken, else the last of the best there is. Stats count
    the samples that are in the log; what the attempts spent beyond these stands in the header's metadata,
    under `resumed`, one entry an attempt.

    Args:
        logs: The attempts: `Resumable.logs` and the log of the latest attempt.
        output: Where to; may be none of them.

    Raises:
        StateError: The logs are not of one run.
        ValidationError: An attempt holds samples that the run does not have.
        DamagedArchive: A log or a sample that is to be copied is not readable.
        OperationError: It cannot be written; nothing was.
    """
    attempts = [read_attempt(path) for path in logs]
    _check(attempts, output)
    records = choose(attempts)
    header = _header(attempts, records)
    with closing(_taken(records)) as samples:
        joined = join(output, samples, lambda rows: header, len(records))
    return Merged(output, joined.header, records, joined.uncomputed)


def merged_path(logs: Sequence[Path]) -> Path:
    """Where the merge of these logs belongs: beside the first, named by how often it was resumed."""
    match = _RESUMED_STEM.fullmatch(logs[0].stem)
    stem, before = (match["stem"], int(match["times"])) if match else (logs[0].stem, 0)
    return logs[0].with_name(f"{stem}-resumed-{before + len(logs) - 1}.eval")


def _taken(records: Sequence[Record]) -> Generator[Taken]:
    with ExitStack() as stack:
        archives: dict[Path, EvalArchive] = {}
        for record in records:
            if record.attempt:
                path = record.attempt.path
                if path not in archives:
                    archives[path] = stack.enter_context(open_readable(path))
                yield Taken(archives[path], record.key, record.summary)


def _check(attempts: Sequence[Attempt], output: Path) -> None:
    if not attempts:
        raise ValidationError("a merge needs at least one log")
    first = attempts[0]
    wanted = {(str(id), epoch) for id, epoch in first.expected}
    for attempt in attempts:
        if attempt.path.resolve() == output.resolve():
            raise ValidationError(f"{output}: is one of the logs to be merged; give another output")
        for what, one, other in (
            ("configuration", first.metadata.get(FINGERPRINT), attempt.metadata.get(FINGERPRINT)),
            ("task", first.header["eval"].get("task"), attempt.header["eval"].get("task")),
        ):
            if one != other:
                raise StateError(
                    f"{attempt.path}: is of another {what} ({other}) than {first.path} ({one}),"
                    " so they are not attempts at one run"
                )
        strangers = [str(key) for key in attempt.summaries if wanted and key not in wanted]
        if strangers:
            raise ValidationError(
                f"{attempt.path}: holds samples that {first.path} does not expect: {', '.join(strangers[:5])}"
            )
    ids = [attempt.eval_id for attempt in attempts]
    if len(set(ids)) < len(ids):
        raise ValidationError("a log may be merged only once: two of them have one eval id")


def _header(attempts: Sequence[Attempt], records: Sequence[Record]) -> JsonObject:
    first, last = attempts[0], attempts[-1]
    status = _status(last, records)
    header: JsonObject = {
        "version": first.header.get("version", 2),
        "status": status,
        "eval": _spec(attempts, records),
        "plan": child(first.header, "plan"),
        "stats": stats_of(
            [record.summary for record in records if record.attempt],
            [child(attempt.header, "stats") for attempt in attempts],
        ),
    }
    if status == "error":
        header["error"] = child(last.header, "error") or _errored(records)
    if any(attempt.header.get("invalidated") for attempt in attempts):
        header["invalidated"] = True
    for key in ("log_updates", "config_updates"):
        if updates := [update for attempt in attempts for update in children(attempt.header, key)]:
            header[key] = updates
    return header


def _status(last: Attempt, records: Sequence[Record]) -> str:
    """Success when every sample-epoch is there, unless the last attempt failed over errored ones."""
    states = {record.state for record in records}
    given = str(last.header.get("status"))
    if State.MISSING in states:
        return "cancelled" if given in ("started", "success") else given
    return "error" if State.ERRORED in states and given != "success" else "success"


def _errored(records: Sequence[Record]) -> JsonObject:
    count = sum(record.state is State.ERRORED for record in records)
    text = f"{count} of {len(records)} samples errored"
    return {"message": text, "traceback": text, "traceback_ansi": text}


def _spec(attempts: Sequence[Attempt], records: Sequence[Record]) -> JsonObject:
    spec = dict(attempts[0].header["eval"])
    spec["eval_id"] = hashlib.sha256(
        ("resumed:" + ":".join(attempt.eval_id for attempt in attempts)).encode()
    ).hexdigest()[:32]
    spec["metadata"] = _metadata(attempts, records)
    known = Union()
    for attempt in attempts:
        known.add(attempt.header)
    return known.complete(spec)


def _metadata(attempts: Sequence[Attempt], records: Sequence[Record]) -> JsonObject:
    """The first attempt's, completed by what only later ones know, and what became of each attempt."""
    metadata: JsonObject = {}
    for attempt in attempts:
        for key, value in attempt.metadata.items():
            if metadata.get(key) is None:
                metadata[key] = value
    metadata.pop(RESUMES, None)
    entries = [entry for attempt in attempts for entry in children(attempt.metadata, RESUMED)]
    metadata[RESUMED] = entries + [_entry(attempt, records) for attempt in attempts]
    return metadata


def _entry(attempt: Attempt, records: Sequence[Record]) -> JsonObject:
    """What an attempt gave to the merged log, and what it spent on samples that are not in it."""
    taken = {record.key: record.summary for record in records if record.attempt is attempt}
    stats = child(attempt.header, "stats")
    left = [
        {"id": row["id"], "epoch": key.epoch, "state": attempt.states[key].value}
        for key, row in attempt.summaries.items()
        if key not in taken
    ]
    return {
        "log": attempt.path.name,
        "eval_id": attempt.eval_id,
        "created": attempt.header["eval"].get("created"),
        "status": attempt.header.get("status"),
        "command": attempt.metadata.get("command"),
        "ct_version": attempt.metadata.get("ct_version"),
        "started_at": stats.get("started_at"),
        "completed_at": stats.get("completed_at"),
        "samples": len(taken),
        "superseded": left,
        **{
            f"other_{key}": beyond(_spent(attempt, key), added(usage_of(row, key) for row in taken.values()))
            for key in USAGE_KEYS
        },
        "usage_complete": "stats" in attempt.header,
    }


def _spent(attempt: Attempt, key: str) -> Usage:
    """All that an attempt is known to have spent; of a killed one only what its samples say."""
    samples = added(usage_of(row, key) for row in attempt.summaries.values())
    stats = usage_of(child(attempt.header, "stats"), key)
    return added([samples, beyond(stats, samples)])
