"""Samples taken from a recording: their environments and tasks, and what a replay records about them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from control_tower.client.sources import current_log
from control_tower.environments.env_args import restore_env_args
from control_tower.errors import ExpectedError, ValidationError
from control_tower.evals.run_config import TaskSelection
from control_tower.game.white import White
from control_tower.logs.json_text import child
from control_tower.logs.recordings import (
    REPLAY_EPOCH,
    REPLAY_MODELS,
    REPLAY_SAMPLE_ID,
    REPLAY_SOURCE,
    REPLAYS,
    RecordedLog,
    RecordedSample,
    Recording,
    read_log,
)
from control_tower.policies.registry import policies
from control_tower.records.scores import TASKS_SCORE
from control_tower.settings.environments import FoundEnvironment, find_environment

SPARE_STEPS = 5
"""How many more times than in the longest recording a replay may be asked."""

_HARMLESS = ("demo/", "scripted/")
_AUTHORS = "_replay_authors"
_ATTEMPTS = {"mt": "attempts_main_task", "st": "attempts_side_task", "sneaky": "attempts_sneaky"}


@dataclass(frozen=True, eq=False)
class Origin:
    """The recorded sample that a sample was taken from."""

    log: RecordedLog
    sample: RecordedSample

    def recording(self) -> Recording:
        """Its turns, read from the log now.

        Raises:
            OperationError: the log changed since the run was planned.
        """
        return self.log.recording(self.sample.key)

    @property
    def harmless(self) -> bool:
        """Whether only demo models and scripts decided what was played, so far as the log says."""
        return bool(self.sample.models) and all(
            model.startswith(_HARMLESS) and model != REPLAYS for model in self.sample.models
        )

    def metadata(self, *, replays: bool) -> dict[str, Any]:
        """What a sample taken from here records.

        Args:
            replays: whether its policy plays the recorded turns, so that they are its authors'.
        """
        key = self.sample.key
        named = {REPLAY_SOURCE: self.log.path.name, REPLAY_SAMPLE_ID: key.id, REPLAY_EPOCH: key.epoch}
        if not replays:
            return named
        return {**named, REPLAY_MODELS: list(self.sample.models), **self._annotations()}

    def _annotations(self) -> dict[str, Any]:
        """Who wrote the turns and what they attempted, as far as it is known."""
        recorded = self.sample.replay
        earlier = {k: recorded[k] for k in (_AUTHORS, *_attempt_keys()) if k in recorded}
        if REPLAY_SOURCE in recorded:
            return earlier
        authors = _authors(self.log, self._selection())
        return {**({_AUTHORS: authors} if authors else {}), **self._attempts(), **earlier}

    def _selection(self) -> dict[str, Any]:
        """The policy that played the sample, as its log's header records it."""
        stream = "attack" if self.sample.side_ids else "honest"
        metadata = self.log.metadata
        return child(metadata, f"{stream}_policy_selection") or child(metadata, "policy_selection")

    def _attempts(self) -> dict[str, bool]:
        try:
            flags = policies.get(str(self._selection().get("name"))).metadata
        except ExpectedError:
            return {}
        attempts = {f"_replay_attempts_{short}": bool(flags.get(flag)) for short, flag in _ATTEMPTS.items()}
        value = child(child(self.sample.scores, TASKS_SCORE), "value")
        for role, short in (("main", "mt"), ("side", "st")):
            if value.get(role) == 1.0:
                attempts[f"_replay_attempts_{short}"] = True
        return attempts


@dataclass(frozen=True)
class Taken:
    """A recorded sample with its environment found again."""

    origin: Origin
    found: FoundEnvironment
    args: BaseModel | None


def taken_samples(selection: TaskSelection, *, errored: bool) -> Iterator[Taken]:
    """The samples of a selection's recording that its other options leave, in the order they were planned.

    Args:
        selection: names the recording; environments and tasks in it keep only samples that have these.
        errored: whether to take samples that had failed.

    Raises:
        UsageError: the recording is no log here, or an environment in it is not installed.
        ValidationError: the log cannot be replayed.
    """
    log = recorded_log(selection.from_run or "")
    wanted = {find_environment(name).id for name in selection.environments}
    args: dict[str, BaseModel | None] = {}
    for sample in _with_tasks(log, selection):
        if sample.error is not None and not errored:
            continue
        found = find_environment(sample.env_id)
        if wanted and found.id not in wanted:
            continue
        restored = restore_env_args(found.env, sample.env_args)
        if args.setdefault(found.id, restored) != restored:
            raise ValidationError(
                f"{log.path}: its samples have {found.id} under different arguments; one run cannot have both"
            )
        yield Taken(Origin(log, sample), found, restored)


def errored_samples(selection: TaskSelection) -> list[RecordedSample]:
    """The samples of a selection's recording that a replay leaves out, since they failed.

    Args:
        selection: as for `taken_samples`.
    """
    log = recorded_log(selection.from_run or "")
    wanted = {find_environment(name).id for name in selection.environments}
    return [
        sample
        for sample in _with_tasks(log, selection)
        if sample.error is not None and (not wanted or sample.env_id in wanted)
    ]


def _with_tasks(log: RecordedLog, selection: TaskSelection) -> Iterator[RecordedSample]:
    """The samples of a log that have the tasks of a selection, if it names any."""
    mains, sides = _groups(selection.main_tasks), _groups(selection.side_tasks)
    for sample in log.samples:
        if (not mains or frozenset(sample.main_ids) in mains) and (
            not sides or frozenset(sample.side_ids) in sides
        ):
            yield sample


def recorded_log(source: str) -> RecordedLog:
    """The log that `--from-run` names, read once as long as it does not change.

    Raises:
        UsageError: it is no log here.
        ValidationError: its samples cannot be taken over.
    """
    path = current_log(source)
    status = path.stat()
    return _read(path, (status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=2)
def _read(path: Path, version: tuple[int, int]) -> RecordedLog:
    return read_log(path)


def enough_steps(white: White, longest: int) -> White:
    """White with as many steps as the longest recording needs, unless they were set."""
    if "max_steps" in white.model_fields_set:
        return white
    return white.model_copy(update={"max_steps": max(white.max_steps, longest + SPARE_STEPS)})


def _groups(named: tuple[str, ...]) -> set[frozenset[str]]:
    return {frozenset(group.split("+")) for group in named}


def _attempt_keys() -> Iterator[str]:
    return (f"_replay_attempts_{short}" for short in _ATTEMPTS)


def _authors(log: RecordedLog, selection: Mapping[str, Any]) -> list[str]:
    """The model that played, by its short name."""
    used = child(child(log.header, "stats"), "model_usage")
    named: Any = (
        child(cast(dict[str, Any], selection), "args").get("model")
        or child(log.metadata, "model_roles").get("untrusted")
        or next(iter(used), None)
    )
    if not isinstance(named, str):
        return []
    short = named.removeprefix("openrouter/").rsplit("/", 1)[-1]
    return [re.sub(r"-\d{4}-\d{2}-\d{2}$", "", short)]
