"""Several logs converted together: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from control_tower.conversion.convert import Report, age_of_log, convert
from control_tower.conversion.ids import derived_id
from control_tower.conversion.merge import Run, merge_runs
from control_tower.conversion.scratch import scratch_folder
from control_tower.conversion.streams import Stream
from control_tower.conversion.version import Age
from control_tower.errors import ExpectedError, OperationError, UsageError, ValidationError
from control_tower.logs.archive import EvalArchive

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What is to be converted."""

    sources: Sequence[Path]
    honest: Path | None = None
    attack: Path | None = None
    origins: Mapping[Path, str] = field(default_factory=dict[Path, str])
    """What `converted_from` calls a log; else it is its eval id."""

    @property
    def logs(self) -> list[tuple[Path, Stream | None]]:
        """The logs that become one each, and their streams."""
        flagged: list[tuple[Path | None, Stream]] = [(self.honest, "honest"), (self.attack, "attack")]
        alone: list[tuple[Path, Stream | None]]
        alone = [] if self.merges else [(path, stream) for path, stream in flagged if path]
        positional: list[tuple[Path, Stream | None]] = [(path, None) for path in self.sources]
        return [*positional, *alone]

    @property
    def merges(self) -> bool:
        """Whether two runs become one log."""
        return self.honest is not None and self.attack is not None


@dataclass(frozen=True)
class Converted:
    """One converted log."""

    converted_from: tuple[str, ...]
    path: Path
    sources: tuple[Path, ...]
    changes: Mapping[str, int]
    """How often each rule was applied."""
    not_kept: Mapping[str, int]
    """What the current format cannot hold, and how often."""

    def as_json(self, *, written: bool) -> dict[str, Any]:
        """The line that programs read."""
        path = str(self.path) if written else None
        return {"converted_from": list(self.converted_from), "eval": path, "run_id": None}


def convert_logs(request: Request, folder: Path, say: Say, *, write: bool = True) -> list[Converted]:
    """Convert logs, and put them in place when every one could be converted.

    Args:
        request: Which logs.
        folder: Where the converted ones go.
        say: Is told what is done.
        write: False converts without putting anything in place.

    Returns:
        The merged log first, then the others in order; those that are current already are left out.

    Raises:
        UsageError: One log is named twice.
        ExpectedError: A log cannot be converted; nothing is put in place.
    """
    if write:
        _make(folder)
    with scratch_folder(folder if write else Path(gettempdir())) as scratch:
        made: list[tuple[Path, Converted]] = []
        failures: list[ExpectedError] = []
        for work in _works(request, scratch, folder, say):
            try:
                if (done := work()) is not None:
                    made.append(done)
            except ExpectedError as error:
                failures.append(error)
        _refuse(failures, len(request.logs) + request.merges)
        _check_names([converted for _, converted in made])
        if write:
            for path, converted in made:
                _place(path, converted.path)
    return [converted for _, converted in made]


Work = Callable[[], "tuple[Path, Converted] | None"]


def _works(request: Request, scratch: Path, folder: Path, say: Say) -> Iterator[Work]:
    if request.honest is not None and request.attack is not None:
        honest, attack = request.honest, request.attack
        yield lambda: _merge(honest, attack, request.origins, scratch / "merged", folder, say)
    for number, (path, stream) in enumerate(request.logs):
        yield lambda path=path, stream=stream, number=number: _one(
            path, stream, request.origins.get(path), scratch / str(number), folder, say
        )


def _one(
    source: Path, stream: Stream | None, origin: str | None, scratch: Path, folder: Path, say: Say
) -> tuple[Path, Converted] | None:
    if age_of_log(source) is Age.CURRENT:
        say(f"{source}: its format is current already; skipped")
        return None
    say(f"{source}: converting")
    report = convert(source, scratch / "log.eval", stream, origin=origin)
    name = _name(source.stem, report.eval_id, stream or "")
    return report.target, Converted(
        report.converted_from, folder / name, (source,), report.changes, report.not_kept
    )


def _merge(
    honest: Path, attack: Path, origins: Mapping[Path, str], scratch: Path, folder: Path, say: Say
) -> tuple[Path, Converted]:
    reports: list[Report] = []
    runs: list[Run] = []
    streams: list[tuple[Path, Stream]] = [(honest, "honest"), (attack, "attack")]
    for source, stream in streams:
        if age_of_log(source) is Age.CURRENT:
            runs.append(Run(source, str(source), origins.get(source) or _eval_id(source)))
            continue
        say(f"{source}: converting")
        report = convert(source, scratch / f"{stream}.eval", stream, origin=origins.get(source))
        reports.append(report)
        runs.append(Run(report.target, str(source), report.converted_from[0]))
    say(f"{honest} and {attack}: merging")
    merged = merge_runs(runs[0], runs[1], scratch / "log.eval")
    dropped = {f"header metadata {key!r}, on which the runs do not agree": 1 for key in merged.dropped}
    return merged.path, Converted(
        merged.converted_from,
        folder / _name(f"{honest.stem}+{attack.stem}", merged.eval_id, "both"),
        (honest, attack),
        _summed(report.changes for report in reports),
        {**_summed(report.not_kept for report in reports), **dropped},
    )


def _summed(counts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for what, times in one.items():
            total[what] = total.get(what, 0) + times
    return dict(sorted(total.items()))


def _name(stem: str, eval_id: str, stream: str) -> str:
    """A file name that is a function of the source and the stream."""
    return f"{stem[:180]}-{derived_id(eval_id, stream)[:8]}.eval"


def _eval_id(path: Path) -> str:
    with EvalArchive.open(path) as archive:
        return str(archive.header()["eval"].get("eval_id") or path.stem)


def _refuse(failures: Sequence[ExpectedError], logs: int) -> None:
    if len(failures) == 1 and logs == 1:
        raise failures[0]
    if failures:
        reasons = "; ".join(map(str, failures))
        raise ValidationError(
            f"nothing was written, since {len(failures)} of {logs} cannot be converted: {reasons}"
        )


def _check_names(made: Sequence[Converted]) -> None:
    taken: dict[Path, tuple[Path, ...]] = {}
    for one in made:
        if one.path in taken:
            paths = ", ".join(map(str, (*taken[one.path], *one.sources)))
            raise UsageError(f"the same log is named twice: {paths}")
        taken[one.path] = one.sources


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise OperationError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make(folder: Path) -> None:
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _place(made: Path, path: Path) -> None:
    with _writing(path):
        made.replace(path)
