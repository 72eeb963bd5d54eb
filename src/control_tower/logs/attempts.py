"""One log as an attempt at a run: which of its samples are finished, and which must be played again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from control_tower import inspect_private
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.zip_reader import DamagedArchive
from control_tower.records.audit import AUDIT_NAME
from control_tower.records.scores import RESERVED_SCORES, is_no_answer

FINGERPRINT = "run_config_sha256"
"""Header metadata: what two logs of one run have in common."""

RESUMES = "resumes"
"""Header metadata of an attempt that plays only what an earlier log lacks: that log's name and eval id."""

RESUMED = "resumed"
"""Header metadata of a merged log: the attempts it was made of."""

RECOVERED = "recovered"
"""Header metadata of a log made of a damaged one: that log's name and eval id, and its damage."""


class State(StrEnum):
    """How far a sample-epoch got; later members are better."""

    MISSING = "missing"
    ERRORED = "errored"
    UNSCORED = "unscored"
    FINISHED = "finished"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(State).index(self)


@dataclass(frozen=True)
class Attempt:
    """What one log holds of a run."""

    path: Path
    header: JsonObject
    expected: tuple[tuple[int | str, int], ...]
    """Every id and epoch of the run, in the dataset's order, epoch by epoch; empty when not recorded."""
    summaries: dict[SampleKey, JsonObject]
    """Of the samples that are there."""
    states: dict[SampleKey, State]
    damage: tuple[str, ...]
    """Samples that are not readable, so that they count as missing."""

    @property
    def eval_id(self) -> str:
        """What names the log."""
        return str(self.header["eval"].get("eval_id") or self.path.stem)

    @property
    def metadata(self) -> JsonObject:
        """The header's metadata."""
        return child(self.header["eval"], "metadata")

    @property
    def created(self) -> str:
        """When the latest work in it began, as ISO time."""
        own = str(self.header["eval"].get("created") or "")
        return max([own, *(str(entry.get("created") or "") for entry in children(self.metadata, RESUMED))])


def open_readable(path: Path | str) -> EvalArchive:
    """A log, torn or not: of a torn one what can still be read.

    Raises:
        DamagedArchive: Not even its header can.
    """
    try:
        return EvalArchive.open(path)
    except DamagedArchive as damaged:
        archive = EvalArchive.salvage(path)
        try:
            archive.header()
        except DamagedArchive:
            archive.close()
            raise damaged from None
        return archive


def read_attempt(path: Path | str, *, verify: bool = True) -> Attempt:
    """Reads a log's header and summaries, and samples where these do not suffice.

    Args:
        path: The log, or its `s3://` address.
        verify: Read every sample to its end, so that a damaged one counts as missing.

    Raises:
        StateError: There is no such file.
        DamagedArchive: Its header cannot be read.
    """
    with open_readable(path) as archive:
        header = archive.header()
        rows, damage = _rows(archive, verify=verify)
        invalidated = _invalidated(archive, rows) if header.get("invalidated") else set[SampleKey]()
    scored = bool(children(header["eval"], "scorers"))
    states = {
        key: State.ERRORED if key in invalidated else state_of(row, scored=scored)
        for key, row in rows.items()
    }
    return Attempt(Path(path), header, expected_samples(header), rows, states, tuple(damage))


def expected_samples(header: JsonObject) -> tuple[tuple[int | str, int], ...]:
    """Every id and epoch that a log's run has, epoch by epoch; empty when the log does not say."""
    ids: Any = child(header["eval"], "dataset").get("sample_ids") or []
    epochs = int(child(header["eval"], "config").get("epochs") or 1)
    return tuple((id, epoch) for epoch in range(1, epochs + 1) for id in ids)


def state_of(summary: JsonObject, *, scored: bool = True) -> State:
    """How far a sample got, by its summary.

    A task's Score that is NaN or "no answer" makes it unscored; so does having no Score at all, where
    the log has scorers (`scored`). What monitors and audits say makes no difference.
    """
    if summary.get("error"):
        return State.ERRORED
    scores = child(summary, "scores")
    if not scores and scored:
        return State.UNSCORED
    verdicts = [child(scores, name).get("value") for name in scores if not _is_reserved(name)]
    return State.UNSCORED if any(is_no_answer(value) for value in verdicts) else State.FINISHED


def _rows(archive: EvalArchive, *, verify: bool) -> tuple[dict[SampleKey, JsonObject], list[str]]:
    rows: dict[SampleKey, JsonObject] = {}
    damage = [str(found) for found in archive.damage if found.member]
    summaries = {SampleKey.of(row): row for row in archive.summaries()}
    for key in archive.sample_keys():
        try:
            if key not in summaries:
                summaries[key] = inspect_private.sample_summary(archive.sample(key))
            elif verify:
                archive.verify(key.member)
        except DamagedArchive as error:
            damage.append(str(error))
        else:
            rows[key] = summaries[key]
    return rows, damage


def _invalidated(archive: EvalArchive, rows: dict[SampleKey, JsonObject]) -> set[SampleKey]:
    return {key for key in rows if archive.sample(key).get("invalidation")}


def _is_reserved(name: str) -> bool:
    return name in RESERVED_SCORES or AUDIT_NAME.fullmatch(name) is not None
