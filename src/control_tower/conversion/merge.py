"""An honest run and an attack run as one control-eval log that holds both streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from control_tower.conversion.convert import ordered_keys, summary_of
from control_tower.conversion.merged_header import merged_header
from control_tower.conversion.sample import CONVERTED_FROM, TRAJECTORY_ID
from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.joined import Taken, join
from control_tower.logs.json_text import JsonObject, child, children


@dataclass(frozen=True)
class Run:
    """One of the two runs."""

    path: Path
    """Its log in the current format."""
    name: str
    """What messages call it."""
    origin: str
    """What `converted_from` calls it."""


@dataclass(frozen=True)
class MergedRuns:
    """What merging two runs made."""

    path: Path
    eval_id: str
    converted_from: tuple[str, str]
    samples: int
    dropped: tuple[str, ...]
    """Keys of the header's metadata on which the runs disagree, or that the format does not know."""


def merge_runs(honest: Run, attack: Run, target: Path) -> MergedRuns:
    """Write one control-eval log of two runs, the honest samples first.

    Args:
        honest: The run without side tasks.
        attack: The run whose samples all have side tasks.
        target: Where to; what is there is replaced.

    Raises:
        ValidationError: A sample is of the wrong stream, or the runs differ in protocol, white settings
            or models.
        StateError: An honest and an attack sample share an id and epoch.
        DamagedArchive: A log is not readable.
        OperationError: It cannot be written; what was there is untouched.
    """
    with EvalArchive.open(honest.path) as one, EvalArchive.open(attack.path) as other:
        headers = (one.header(), other.header())
        _check_alike(honest, attack, *(child(header["eval"], "metadata") for header in headers))
        keys = (ordered_keys(one), ordered_keys(other))
        _check_distinct(honest, attack, *keys)
        dropped: tuple[str, ...] = ()

        def header(rows: Sequence[JsonObject]) -> JsonObject:
            nonlocal dropped
            made, dropped = merged_header(*headers, (honest.origin, attack.origin), rows)
            return made

        samples = chain(_taken(honest, one, "honest", keys[0]), _taken(attack, other, "attack", keys[1]))
        joined = join(target, samples, header)
    return MergedRuns(
        target,
        str(joined.header["eval"]["eval_id"]),
        (honest.origin, attack.origin),
        len(joined.rows),
        dropped,
    )


def _taken(run: Run, archive: EvalArchive, stream: str, keys: Sequence[SampleKey]) -> Iterator[Taken]:
    summaries = {SampleKey.of(row): row for row in archive.summaries()}
    for key in keys:
        sample = archive.sample(key)
        _check_stream(run, key, sample, stream)
        metadata = _marked(child(sample, "metadata"), run.origin)
        if metadata == sample.get("metadata") and key in summaries:
            yield Taken(archive, key, summaries[key])
        else:
            changed = {**sample, "metadata": metadata}
            yield Taken(archive, key, summary_of(changed), changed)


def _check_alike(honest: Run, attack: Run, one: JsonObject, other: JsonObject) -> None:
    differ = [
        f"{key} ({one.get(key)!r:.80} and {other.get(key)!r:.80})"
        for key in ("protocol_selection", "white")
        if one.get(key) != other.get(key)
    ]
    models = (child(one, "model_roles"), child(other, "model_roles"))
    differ += [
        f"the {role} model ({models[0][role]} and {models[1][role]})"
        for role in models[0]
        if role in models[1] and models[0][role] != models[1][role]
    ]
    if differ:
        raise ValidationError(
            f"{honest.name} and {attack.name} are no two streams of one evaluation: they differ in "
            + ", ".join(differ)
        )


def _check_distinct(honest: Run, attack: Run, one: Sequence[SampleKey], other: Sequence[SampleKey]) -> None:
    taken = set(one)
    if both := [str(key) for key in other if key in taken]:
        shown = ", ".join(both[:5]) + (", ..." if len(both) > 5 else "")
        raise StateError(f"{honest.name} and {attack.name} share {len(both)} sample ids and epochs: {shown}")


def _check_stream(run: Run, key: SampleKey, sample: JsonObject, stream: str) -> None:
    has_sides = bool(children(child(sample, "metadata"), "side_tasks"))
    if has_sides is (stream == "honest"):
        what = (
            "has side tasks, so it is no honest one" if has_sides else "has no side task, so it is no attack"
        )
        raise ValidationError(f"{run.name}: sample {key}: {what}")


def _marked(metadata: Mapping[str, Any], origin: str) -> JsonObject:
    rest = {key: value for key, value in metadata.items() if key != TRAJECTORY_ID}
    return rest if CONVERTED_FROM in rest else {CONVERTED_FROM: {"run": origin}, **rest}
