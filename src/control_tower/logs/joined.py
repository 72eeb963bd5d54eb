"""One log written of samples that stand in others: copied as they are, results worked out again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from control_tower.logs.archive import HEADER, REDUCTIONS, START, SUMMARIES, EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, child, children, dumps
from control_tower.logs.results import compute_results
from control_tower.logs.zip_writer import new_archive


@dataclass(frozen=True)
class Taken:
    """A sample of another log."""

    archive: EvalArchive
    key: SampleKey
    summary: JsonObject
    changed: JsonObject | None = None
    """What is written in its place; None copies it."""


@dataclass(frozen=True)
class Joined:
    """What was written."""

    header: JsonObject
    rows: tuple[JsonObject, ...]
    """The summaries, in the order of the samples."""
    uncomputed: tuple[str, ...]
    """Scorers without results, since their metrics are not installed here."""


def join(
    output: Path,
    samples: Iterable[Taken],
    header: Callable[[Sequence[JsonObject]], JsonObject],
    total: int | None = None,
) -> Joined:
    """Writes a log of samples of others; the same samples and header give the same bytes.

    Args:
        output: Where to; what is there is replaced.
        samples: One after the other, so that an archive need only be open while its sample is taken.
        header: Makes the header, without results, when the summaries of all samples are known.
        total: How many samples there should be; as many as there are when None.

    Raises:
        ValidationError: Inspect cannot read the header or a score.
        DamagedArchive: A sample is not readable.
        OperationError: It cannot be written; what was there is untouched.
    """
    rows: list[JsonObject] = []
    with new_archive(output) as writer:
        for one in samples:
            if one.changed is None:
                writer.copy(one.archive.members, one.key.member)
            else:
                writer.add(one.key.member, dumps(one.changed))
            rows.append(one.summary)
        made = header(rows)
        computed = compute_results(made, rows, len(rows) if total is None else total)
        made["results"] = computed.results
        writer.add(START, dumps({key: made[key] for key in ("version", "eval", "plan") if key in made}))
        writer.add(SUMMARIES, dumps(rows))
        writer.add(REDUCTIONS, dumps(computed.reductions))
        writer.add(HEADER, dumps(made))
    return Joined(made, tuple(rows), computed.uncomputed)


class Union:
    """What the headers of joined logs know together of scorers and environments; the first to know counts."""

    def __init__(self) -> None:
        self._scorers: dict[str, JsonObject] = {}
        self._versions: JsonObject = {}

    def add(self, header: JsonObject) -> None:
        """The next log's header."""
        spec = header["eval"]
        for scorer in children(spec, "scorers"):
            self._scorers.setdefault(str(scorer.get("name")), scorer)
        given = child(child(spec, "metadata"), "env_versions")
        for environment in given:
            known, found = child(self._versions, environment), child(given, environment)
            self._versions.setdefault(environment, given[environment])
            if known and known.get("image_digest") is None and found.get("image_digest"):
                self._versions[environment] = {**known, "image_digest": found["image_digest"]}

    def complete(self, spec: JsonObject) -> JsonObject:
        """An `eval` object with all scorers and environments, in the order in which they came."""
        metadata = {
            **child(spec, "metadata"),
            **({"env_versions": self._versions} if self._versions else {}),
        }
        scorers = {"scorers": list(self._scorers.values())} if self._scorers else {}
        return {**spec, **scorers, "metadata": metadata}
