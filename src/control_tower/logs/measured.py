"""From logs to a report: which samples are measured together, and by the scores of which monitor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from control_tower.errors import UsageError, did_you_mean
from control_tower.logs.numbers import NumbersLog
from control_tower.metrics.evaluation import evaluate
from control_tower.metrics.pareto import pareto
from control_tower.metrics.report import Estimate, Evaluation, Parameters, Report
from control_tower.metrics.samples import SampleNumbers, SourceInfo, Stream


@dataclass(frozen=True)
class Inputs:
    """The logs of a report."""

    logs: tuple[Path, ...] = ()
    """Each measured by itself."""
    honest: tuple[Path, ...] = ()
    """Their honest samples are measured with the attack samples of `attack`."""
    attack: tuple[Path, ...] = ()
    trusted: Path | None = None
    """Honest runs of the trusted model alone."""
    originals: Mapping[Path, Path] = field(default_factory=dict[Path, Path])
    """Of logs that were converted for now, the older log."""


@dataclass(frozen=True)
class _Pool:
    """Samples that are measured together."""

    sources: tuple[SourceInfo, ...]
    samples: tuple[SampleNumbers, ...]

    @property
    def monitors(self) -> list[str]:
        return sorted({name for sample in self.samples for name in sample.monitors})

    @property
    def live(self) -> bool:
        return any(source.live_audits for source in self.sources)

    @property
    def name(self) -> str:
        return " + ".join(dict.fromkeys(source.name for source in self.sources))


def measure_logs(inputs: Inputs, monitors: Sequence[str], parameters: Parameters) -> Report:
    """Measure logs.

    Args:
        inputs: The logs.
        monitors: By whose scores audits are chosen, each in an evaluation of its own; all when empty.
        parameters: How to measure.

    Raises:
        UsageError: The logs do not go together, or one lacks a monitor that was named.
        StateError: There is no such log.
        ValidationError: One is damaged, or in an older format.
    """
    evaluations: list[Evaluation] = []
    known: set[str] = set()
    for pool in _pools(inputs):
        known.update(pool.monitors)
        for monitor in _chosen(pool, monitors):
            evaluations.append(evaluate(pool.sources, pool.samples, monitor, parameters))
    if unknown := [name for name in monitors if name not in known]:
        raise UsageError(f"no log has scores of monitor {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    named = _named(evaluations)
    trusted = _trusted(inputs.trusted, inputs.originals, parameters) if inputs.trusted else None
    return Report(
        parameters,
        tuple(named),
        {budget: pareto(named, budget, trusted) for budget in parameters.budgets},
    )


def _pools(inputs: Inputs) -> Iterator[_Pool]:
    """The samples of one evaluation after the other, so that one log is held at a time."""
    paths = [*inputs.logs, *inputs.honest, *inputs.attack]
    of_originals = _names([inputs.originals.get(path, path) for path in paths])
    names = {path: of_originals[inputs.originals.get(path, path)] for path in paths}
    for path in inputs.logs:
        yield _read([(path, None)], names, inputs.originals)
    if inputs.honest or inputs.attack:
        if not (inputs.honest and inputs.attack):
            raise UsageError("give --honest and --attack together, or a log with both streams")
        pairs: list[tuple[Path, Stream | None]] = [(path, "honest") for path in inputs.honest]
        yield _read([*pairs, *((path, "attack") for path in inputs.attack)], names, inputs.originals)


def _read(
    parts: Sequence[tuple[Path, Stream | None]], names: Mapping[Path, str], originals: Mapping[Path, Path]
) -> _Pool:
    sources: dict[Path, SourceInfo] = {}
    samples: list[SampleNumbers] = []
    for path, stream in parts:
        with NumbersLog(path, names[path], originals.get(path)) as log:
            found = list(log.samples())
            sources[path] = log.info(found)
        samples += [sample for sample in found if stream in (None, sample.stream)]
    protocols = {source.protocol.removeprefix("ct/") for source in sources.values()}
    if len(protocols) > 1:
        raise UsageError(
            f"logs that are measured together must be of one protocol, not {' and '.join(sorted(protocols))}"
        )
    twice = Counter((sample.ref.id, sample.ref.epoch) for sample in samples)
    if repeated := [key for key, count in twice.items() if count > 1]:
        identity, epoch = repeated[0]
        raise UsageError(
            f"sample {identity} (epoch {epoch}) is in more than one of the logs, so it would count twice"
        )
    return _Pool(tuple(sources.values()), tuple(samples))


def _chosen(pool: _Pool, monitors: Sequence[str]) -> list[str | None]:
    """The monitors that a pool is measured with; None for none."""
    if pool.live:
        named = [name for name in pool.monitors if not monitors or name in monitors]
        return [named[0] if len(named) == 1 else None]
    if not pool.monitors:
        return [None]
    if not monitors:
        return list(pool.monitors)
    if lacking := [name for name in monitors if name not in pool.monitors]:
        raise UsageError(
            f"{pool.name} has no scores of monitor {lacking[0]!r}{did_you_mean(lacking[0], pool.monitors)}"
        )
    return list(monitors)


def _named(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The evaluations; those that are called alike with what tells their logs apart."""
    alike: dict[str, list[SourceInfo]] = {}
    for evaluation in evaluations:
        alike.setdefault(evaluation.name, []).append(evaluation.sources[0])
    labels = {name: _labels(sources) for name, sources in alike.items() if len(sources) > 1}
    return [
        replace(evaluation, name=f"{evaluation.name} ({label})")
        if (label := labels.get(evaluation.name, {}).get(evaluation.sources[0].name))
        else evaluation
        for evaluation in evaluations
    ]


def _labels(sources: Sequence[SourceInfo]) -> dict[str, str]:
    """By log a label that only it has: its run's name, else when it was made, else its own name."""
    for labels in (
        {source.name: source.run_name or "" for source in sources},
        {source.name: (source.created or "")[:19].replace("T", " ") for source in sources},
    ):
        if all(labels.values()) and len(set(labels.values())) == len(sources):
            return labels
    return {source.name: source.name for source in sources}


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A name of each log, as short as it can be for no two to be alike."""
    endings = {path: _endings(path) for path in paths}
    alike = Counter(ending for own in endings.values() for ending in own)
    return {
        path: next((ending for ending in own if alike[ending] == 1), str(path))
        for path, own in endings.items()
    }


def _endings(path: Path) -> list[str]:
    """The log's name without ending, alone and behind more and more of its folders."""
    parts = path.with_suffix("").parts
    return ["/".join(parts[start:]) for start in reversed(range(len(parts)))]


def _trusted(path: Path, originals: Mapping[Path, Path], parameters: Parameters) -> Estimate:
    pool = _read([(path, "honest")], {path: path.stem}, originals)
    return evaluate(pool.sources, pool.samples, None, replace(parameters, by=None)).usefulness
