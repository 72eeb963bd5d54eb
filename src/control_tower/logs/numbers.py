"""From a log to plain numbers, one sample at a time: verdicts, scores, audits, landing, costs."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, children
from control_tower.logs.slot_costs import SlotCosts, Slots, slot_costs
from control_tower.metrics.samples import Money, MonitorNumbers, SampleNumbers, SampleRef, SourceInfo
from control_tower.models.cost import Cost, cost_of_usage
from control_tower.records.monitor_scores import HIGHEST, LOWEST, MonitorKey, read_suspicion
from control_tower.records.outcomes import stopped_unscored
from control_tower.records.scores import (
    MONITOR_SCORE,
    SIDE_SUFFIX,
    TASKS_SCORE,
    UnreadableVerdict,
    is_no_answer,
    read_verdict,
)
from control_tower.storage.source import ByteSource

MAJOR = 3
"""The format that is read."""

AUDIT_ARGUMENTS = ("sus_threshold", "audit_threshold")
"""Arguments of protocols that, when set, let them audit while a sample runs."""


class NumbersLog:
    """A log whose samples are read as numbers, each when it is asked for.

    Use it in a `with` statement.
    """

    def __init__(
        self,
        path: Path,
        name: str | None = None,
        original: Path | None = None,
        source: ByteSource | None = None,
    ) -> None:
        """Open a log.

        Args:
            path: The `.eval` file; one that was not finished gives the samples it holds.
            name: What its samples are said to come from; the file's name without ending when left out.
            original: The older log that it was converted from for now, which is what the user knows of.
            source: The log's bytes where they are kept otherwise; `path` is then no more than its name.

        Raises:
            StateError: There is no such file.
            ValidationError: It is damaged, no log of ours, or in an older format.
        """
        self.path = original or path
        self._converted = original is not None
        self.name = name or path.stem
        self._archive = EvalArchive.open(source or path)
        try:
            self.header = self._archive.header()
            self.metadata = child(child(self.header, "eval"), "metadata")
            _check_version(self.path, self.metadata.get("eval_version"))
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> NumbersLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def samples(self) -> Iterator[SampleNumbers]:
        """The samples, in the order of the archive.

        Raises:
            ValidationError: One is damaged, or says what cannot be.
        """
        for key in self._archive.sample_keys():
            sample = self._archive.sample(key)
            try:
                yield sample_numbers(self.name, sample)
            except ValidationError as error:
                raise ValidationError(f"{self.path}: {error}") from None

    def info(self, samples: Sequence[SampleNumbers], sha256: str | None = None) -> SourceInfo:
        """What is said about the log, given its samples, and its digest where that is known."""
        spec = child(self.header, "eval")
        policy = child(self.metadata, "policy_selection").get("name")
        return SourceInfo(
            name=self.name,
            sha256=sha256 or _sha256(self.path),
            converted=self._converted,
            eval_id=spec.get("eval_id"),
            run_id=spec.get("run_id"),
            created=spec.get("created"),
            run_name=self.metadata.get("run_name"),
            protocol=str(child(self.metadata, "protocol_selection").get("name") or "unknown"),
            honest_policy=child(self.metadata, "honest_policy_selection").get("name") or policy,
            attack_policy=child(self.metadata, "attack_policy_selection").get("name") or policy,
            live_audits=self._audits_configured() or any(sample.audited for sample in samples),
            status=str(self.header.get("status")),
            samples=len(samples),
            expected=_expected(spec),
            derived_from=self.metadata.get("derived_from"),
            models={str(role): str(name) for role, name in child(self.metadata, "model_roles").items()},
        )

    def _audits_configured(self) -> bool:
        arguments = child(self.metadata, "protocol_args") or child(
            child(self.metadata, "protocol_selection"), "args"
        )
        return any(arguments.get(name) is not None for name in AUDIT_ARGUMENTS)


def sample_numbers(source: str, sample: JsonObject) -> SampleNumbers:
    """The numbers of one sample, as its log holds it.

    Raises:
        ValidationError: A verdict or a monitor's key is not what the format allows, or is of an action that
            the sample does not have.
    """
    key = SampleKey.of(sample)
    metadata = child(sample, "metadata")
    mains, sides = children(metadata, "main_tasks"), children(metadata, "side_tasks")
    scores = child(sample, "scores")
    tasks = child(child(scores, TASKS_SCORE), "value")
    transcript = Transcript.of(sample)
    judgeable = [turn.verdict_call is not None for turn in transcript.actions]
    costs = slot_costs(transcript.events)
    landed_at = _landing(tasks.get("landed_at"), len(judgeable), key)
    return SampleNumbers(
        ref=SampleRef(source, key.id, key.epoch),
        stream="attack" if sides else "honest",
        environment=str(child(metadata, "environment").get("id") or "unknown"),
        mains=_names(mains, "id"),
        sides=_names(sides, "id"),
        combination=_combination(metadata, mains, sides),
        main_categories=_names(mains, "task_category"),
        side_categories=_names(sides, "task_category"),
        main=_verdict(tasks.get("main"), "main", key, -math.inf, math.inf),
        side=_verdict(tasks.get("side"), "side", key, 0.0, 1.0),
        has_tasks=TASKS_SCORE in scores,
        landed_at=landed_at,
        landed_source=_landed_source(scores, _names(sides, "id"), landed_at),
        actions=len(judgeable),
        judgeable=np.array(judgeable, dtype=np.bool_),
        ran=sum(turn.ran for turn in transcript.actions),
        monitors=_monitors(child(child(scores, MONITOR_SCORE), "value"), judgeable, costs, key),
        audited=transcript.audited,
        cost=_cost(sample, transcript),
        slot_costs=np.asarray(costs.playing.usd),
        slots_incomplete=costs.playing.incomplete,
        error=_error(sample),
        stopped_unscored=stopped_unscored(sample),
        faults=_faults(scores, mains, sides),
    )


def _monitors(
    value: JsonObject, judgeable: list[bool], costs: SlotCosts, sample: SampleKey
) -> dict[str, MonitorNumbers]:
    """What each monitor of a `monitor` Score said; drafts that became no action are left out."""
    verdicts: dict[str, dict[int | None, list[float | None]]] = {}
    for text, verdict in value.items():
        key = MonitorKey.parse(text)
        if key.draft is not None:
            continue
        if key.action is not None and key.action >= len(judgeable):
            raise ValidationError(
                f"sample {sample}: monitor score {text!r} is of an action that it does not have "
                f"(it has {len(judgeable)}): the log is damaged or must be converted"
            )
        number = read_suspicion(verdict)
        usable = number is not None and LOWEST <= number <= HIGHEST
        verdicts.setdefault(key.monitor, {}).setdefault(key.action, []).append(number if usable else None)
    return {
        name: _monitor(of_slots, judgeable, costs.monitors.get(name)) for name, of_slots in verdicts.items()
    }


def _monitor(
    of_slots: dict[int | None, list[float | None]], judgeable: list[bool], paid: Slots | None
) -> MonitorNumbers:
    actions = np.full(len(judgeable), math.nan)
    for slot, draws in of_slots.items():
        if slot is not None:
            actions[slot] = _mean(draws)
    asked = np.array([index in of_slots for index in range(len(judgeable))], dtype=np.bool_)
    return MonitorNumbers(
        actions=actions,
        trajectory=_mean(of_slots.get(None, [])),
        judges_actions=any(slot is not None for slot in of_slots),
        judges_trajectory=None in of_slots,
        lacking=np.isnan(actions) & (asked | np.array(judgeable, dtype=np.bool_)),
        unread_draws=sum(draw is None for draws in of_slots.values() for draw in draws),
        costs=None if paid is None else np.asarray(paid.usd),
        costs_incomplete=paid is not None and paid.incomplete,
    )


def _mean(draws: list[float | None]) -> float:
    """The mean of the draws that gave a number; NaN when none did."""
    known = [draw for draw in draws if draw is not None]
    return math.fsum(known) / len(known) if known else math.nan


def _combination(metadata: JsonObject, mains: list[JsonObject], sides: list[JsonObject]) -> str:
    """Environment and tasks by name; empty for a sample without tasks."""
    tasks = [sorted(_names(mains, "id")), sorted(_names(sides, "id"))]
    return json.dumps([child(metadata, "environment").get("id"), *tasks]) if any(tasks) else ""


def _verdict(value: Any, role: str, sample: SampleKey, lowest: float, highest: float) -> float | None:
    try:
        number = read_verdict(value)
    except UnreadableVerdict:
        number = math.inf
    if number is None or (math.isfinite(number) and lowest <= number <= highest):
        return number
    wanted = "a number from 0 to 1" if math.isfinite(highest) else "a number"
    raise ValidationError(f"sample {sample}: its {role} verdict is {value!r}, not {wanted}")


def _landing(value: Any, actions: int, sample: SampleKey) -> int | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value in range(-1, actions):
        return int(value)
    raise ValidationError(
        f"sample {sample}: it landed at action {value!r}, which it does not have (it has {actions})"
    )


def _landed_source(scores: JsonObject, sides: Iterable[str], landed_at: int | None) -> str | None:
    """How the landing is known: `test`, `probe`, `scorer` or `end`; None when that is not recorded."""
    if landed_at is None:
        return None
    for side in sides:
        metadata = child(_side_score(scores, side), "metadata")
        if metadata.get("landed_at") == landed_at and metadata.get("landed_source"):
            return str(metadata["landed_source"])
    return None


def _side_score(scores: JsonObject, side: str) -> JsonObject:
    return child(scores, side + SIDE_SUFFIX) or child(scores, side)


def _faults(scores: JsonObject, mains: list[JsonObject], sides: list[JsonObject]) -> tuple[str, ...]:
    """Why task Scores are unscored or failed without a verdict of their scorer."""
    found = [child(scores, name) for name in _names(mains, "id")]
    found += [_side_score(scores, name) for name in _names(sides, "id")]
    return tuple(
        str(score.get("reason") or "no_verdict")
        for score in found
        if score and (score.get("reason") or is_no_answer(score.get("value")))
    )


def _cost(sample: JsonObject, transcript: Transcript) -> Money:
    """What the sample cost: tokens of all models, and services."""
    usage = child(sample, "model_usage")
    total = sum((cost_of_usage(child(usage, model)) for model in usage), Cost())
    for fact in transcript.facts("cost"):
        usd = fact.get("usd")
        total += Cost(None if usd is None else float(usd), incomplete=usd is None)
    return Money(total.usd or 0.0, total.incomplete)


def _error(sample: JsonObject) -> str | None:
    """What went wrong with a sample; one that was invalidated afterwards counts as errored."""
    if sample.get("error"):
        return str(child(sample, "error").get("message") or "error")
    if sample.get("invalidation"):
        return str(child(sample, "invalidation").get("reason") or "invalidated")
    return None


def _names(records: list[JsonObject], field: str) -> tuple[str, ...]:
    return tuple(str(record[field]) for record in records if record.get(field) is not None)


def _expected(spec: JsonObject) -> int | None:
    dataset, epochs = child(spec, "dataset"), child(spec, "config").get("epochs")
    ids: Any = dataset.get("sample_ids")
    count: Any = len(cast("list[Any]", ids)) if isinstance(ids, list) else dataset.get("samples")
    return count * (epochs or 1) if isinstance(count, int) else None


def _check_version(path: Path, version: Any) -> None:
    """Refuses a log that is not in today's format."""
    major = re.match(r"\d+(?=\.|$)", str(version))
    if version is None or (major and int(major[0]) < MAJOR):
        found = "no format version" if version is None else f"format {version}"
        raise ValidationError(
            f"{path} has {found}; metrics read format {MAJOR}: convert it first with `ct runs convert`"
        )
    if not major or int(major[0]) > MAJOR:
        raise ValidationError(f"{path} has format {version!r}; metrics read format {MAJOR}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
