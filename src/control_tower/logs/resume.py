"""Which logs of a run to continue, and what they still lack.

A run that was killed leaves a log that holds every sample flushed until then. An attempt to continue it is a
log of its own, which names the first in its header (`Resumable.marker`), since it may be killed as well. Once
an attempt has ended, `logs.merge` makes one log of them all, and that log names what it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from control_tower import inspect_private
from control_tower.errors import OperationError, StateError
from control_tower.logs.archive import SampleKey
from control_tower.logs.attempts import (
    FINGERPRINT,
    RECOVERED,
    RESUMED,
    RESUMES,
    Attempt,
    State,
    open_readable,
    read_attempt,
)
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.zip_reader import DamagedArchive


@dataclass(frozen=True)
class Record:
    """The best that the attempts have of one sample-epoch."""

    id: int | str
    epoch: int
    state: State
    attempt: Attempt | None
    """Which attempt has it; None when it is missing."""

    @property
    def key(self) -> SampleKey:
        """The sample's key."""
        return SampleKey(str(self.id), self.epoch)

    @property
    def summary(self) -> JsonObject:
        """Its summary; empty when it is missing."""
        return self.attempt.summaries[self.key] if self.attempt else {}


@dataclass(frozen=True)
class Resumable:
    """The attempts at one run, oldest first."""

    attempts: tuple[Attempt, ...]

    @property
    def logs(self) -> tuple[Path, ...]:
        """The attempts' logs, for `merge`, to which the next attempt's log is added."""
        return tuple(attempt.path for attempt in self.attempts)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """One for each sample-epoch of the run, in the dataset's order."""
        return choose(self.attempts)

    @property
    def to_run(self) -> list[tuple[int | str, int]]:
        """Ids and epochs that must be played again: missing, errored or unscored."""
        return [(r.id, r.epoch) for r in self.records if r.state is not State.FINISHED]

    @property
    def counts(self) -> dict[State, int]:
        """How many sample-epochs are in each state."""
        return {state: sum(record.state is state for record in self.records) for state in State}

    @property
    def marker(self) -> JsonObject:
        """Metadata for the header of the next attempt, by which it is found if it is killed too."""
        first = self.attempts[0]
        return {RESUMES: {"log": first.path.name, "eval_id": first.eval_id}}


def choose(attempts: Sequence[Attempt]) -> tuple[Record, ...]:
    """The best record of each sample-epoch: the first finished one, else the last of the best state."""
    expected = list(attempts[0].expected)
    if not expected:
        ids = {key: row["id"] for attempt in attempts for key, row in attempt.summaries.items()}
        expected = [(id, key.epoch) for key, id in sorted(ids.items(), key=lambda item: item[0].epoch)]
    return tuple(_choose(id, epoch, attempts) for id, epoch in expected)


def find_resumable(log_dir: Path, fingerprint: str) -> Resumable | None:
    """The newest run of a configuration whose logs in a folder lack something, or were not merged yet.

    Args:
        log_dir: The folder; subfolders are not searched.
        fingerprint: Of the configuration, as headers record it.

    Raises:
        StateError: That run is still going on.
    """
    logs = [log for log in _headers(log_dir.glob("*.eval")) if log.metadata.get(FINGERPRINT) == fingerprint]
    for chain in sorted(_chains(logs), key=_newest, reverse=True):
        if len(chain) > 1 or _read(chain, verify=False).to_run:
            return _resumable(chain)
    return None


def resumable(log: Path, fingerprint: str | None = None) -> Resumable:
    """The run of a log, with the other attempts at it in the same folder.

    Args:
        log: Any log of the run; nothing may be left to run.
        fingerprint: Refuse a log of another configuration.

    Raises:
        StateError: There is no such log, it is of another configuration, was merged into another, or is
            still being written.
        DamagedArchive: It is not readable at all.
    """
    own = _header(log)
    if fingerprint is not None and own.metadata.get(FINGERPRINT) != fingerprint:
        raise StateError(
            f"{log}: is not of this configuration; give the options of the run that made it, or run anew"
        )
    others = (path for path in log.parent.glob("*.eval") if path.resolve() != log.resolve())
    logs = [own, *_headers(others)]
    for other in logs:
        if own.eval_id in _made_of(other):
            raise StateError(f"{log}: was merged into {other.path}; resume that one")
    return next(_resumable(chain) for chain in _chains(logs) if own.path in [link.path for link in chain])


def _resumable(chain: Sequence[Attempt]) -> Resumable:
    for link in chain:
        process = inspect_private.writing_process(link.path)
        if process is not None:
            raise StateError(
                f"{link.path}: process {process} is still running it; wait for it, or end it first"
            )
    return _read(chain, verify=True)


def _read(chain: Sequence[Attempt], *, verify: bool) -> Resumable:
    return Resumable(tuple(read_attempt(link.path, verify=verify) for link in chain))


def _choose(id: int | str, epoch: int, attempts: Sequence[Attempt]) -> Record:
    key = SampleKey(str(id), epoch)
    best = Record(id, epoch, State.MISSING, None)
    for attempt in attempts:
        state = attempt.states.get(key, State.MISSING)
        if state is not State.MISSING and best.state is not State.FINISHED and state.rank >= best.state.rank:
            best = Record(id, epoch, state, attempt)
    return best


def _headers(paths: Iterable[Path]) -> list[Attempt]:
    """The logs whose headers can be read, without their samples."""
    found: list[Attempt] = []
    for path in sorted(paths):
        try:
            found.append(_header(path))
        except (DamagedArchive, StateError, OperationError):
            continue
    return found


def _header(path: Path) -> Attempt:
    with open_readable(path) as archive:
        return Attempt(path, archive.header(), (), {}, {}, ())


def _made_of(log: Attempt) -> set[str]:
    made_of = [*children(log.metadata, RESUMED), child(log.metadata, RECOVERED)]
    return {str(entry["eval_id"]) for entry in made_of if entry.get("eval_id")}


def _chains(logs: Sequence[Attempt]) -> list[list[Attempt]]:
    """The logs by run, oldest first, without those that were merged into another."""
    merged = {eval_id for log in logs for eval_id in _made_of(log)}
    live: Mapping[str, Attempt] = {log.eval_id: log for log in logs if log.eval_id not in merged}
    chains: dict[str, list[Attempt]] = {}
    for log in sorted(live.values(), key=lambda log: (log.created, log.path)):
        chains.setdefault(_first(log, live), []).append(log)
    for first, chain in chains.items():
        chain.sort(key=lambda log: log.eval_id != first)
    return list(chains.values())


def _first(log: Attempt, live: Mapping[str, Attempt]) -> str:
    """The eval id of the log that a log continues, directly or not."""
    seen = {log.eval_id}
    while True:
        before = str(child(log.metadata, RESUMES).get("eval_id"))
        if before not in live or before in seen:
            return log.eval_id
        seen.add(before)
        log = live[before]


def _newest(chain: Sequence[Attempt]) -> tuple[str, str]:
    return max((log.created, str(log.path)) for log in chain)
