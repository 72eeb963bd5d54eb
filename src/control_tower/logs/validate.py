"""Whether a log obeys the format: every rule that readers of logs rely on, checked one sample at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from control_tower.logs.archive import REDUCTIONS, EvalArchive, SampleKey
from control_tower.logs.findings import Finding, Place, check_table
from control_tower.logs.format import MAJOR, RUNNER, TASK_NAMES, HeaderMetadata
from control_tower.logs.json_text import JsonObject, child, children, dumps
from control_tower.logs.validate_sample import check_sample
from control_tower.logs.zip_reader import DamagedArchive
from control_tower.records.scores import RESERVED_SCORES, TASKS_SCORE, WORKSPACE_DIFF_SCORE

_NEEDED = frozenset({"eval_version", "white"})


def validate_log(path: Path | str) -> list[Finding]:
    """Everything about a log that is not as the format says, header first, then the samples in their order.

    Args:
        path: The log, or its `s3://` address; of version 3, of another version only that is said.

    Raises:
        StateError: There is no such file.
        OperationError: It cannot be read.
    """
    try:
        with EvalArchive.open(path) as archive:
            return list(_check(archive))
    except DamagedArchive as error:
        return [Place("archive", error.member or "archive").error(error.damage)]


def _check(archive: EvalArchive) -> Iterator[Finding]:
    header = archive.header()
    version = child(header["eval"], "metadata").get("eval_version")
    if str(version).split(".")[0] != str(MAJOR):
        yield Place("version", "header").error(f"the format's version is {version!r}, not {MAJOR}.x")
        return
    yield from _check_header(header)
    if not archive.finished:
        yield Place("unfinished", "archive").error("the run was not finished: there is no header.json")
    yield from _check_reductions(archive)
    summaries = {SampleKey.of(row): row for row in archive.summaries()}
    keys = archive.sample_keys()
    for key in summaries.keys() - set(keys):
        yield Place("summaries", f"sample {key}").error("it has a summary, but the log does not hold it")
    scorers = {str(scorer.get("name")) for scorer in children(header["eval"], "scorers")}
    ids: list[int | str] = child(header["eval"], "dataset").get("sample_ids") or []
    expected = {str(id) for id in ids}
    for key in keys:
        where = f"sample {key}"
        if expected and key.id not in expected:
            yield Place("dataset", where).error("`eval.dataset.sample_ids` does not have its id")
        try:
            sample = archive.sample(key)
        except DamagedArchive as error:
            yield Place("archive", where).error(error.damage)
            continue
        yield from check_sample(sample, where)
        yield from _check_summary(Place("summaries", where), sample, summaries.get(key))
        for name in child(sample, "scores").keys() - scorers:
            yield Place("scorers", where).error(f"its Score {name!r} is not in `eval.scorers`")


def _check_header(header: JsonObject) -> Iterator[Finding]:
    place = Place("header", "header")
    spec = header["eval"]
    metadata = child(spec, "metadata")
    yield from check_table(place, HeaderMetadata, metadata, "eval.metadata", required=_NEEDED)
    if spec.get("task") != metadata.get("run_name"):
        yield place.warning(f"`eval.task` is {spec.get('task')!r}, not the run's name")
    if spec.get("task_registry_name") not in TASK_NAMES:
        yield place.error(f"`eval.task_registry_name` is {spec.get('task_registry_name')!r}")
    if spec.get("model") != "none/none":
        yield place.warning(f"`eval.model` is {spec.get('model')!r}, not 'none/none'")
    if RUNNER not in [step.get("solver") for step in children(child(header, "plan"), "steps")]:
        yield place.warning(f"the solver {RUNNER!r} is not in `plan.steps`")
    both = [metadata.get(f"{stream}_policy_selection") for stream in ("honest", "attack")]
    converted = "converted_from" in metadata
    if "policy_selection" in metadata and bool(metadata["policy_selection"]) == any(both) and not converted:
        yield place.error("either `policy_selection` or those of both streams must be set")
    yield from _check_scorers(header)
    for repeated, count in Counter(map(str, child(spec, "dataset").get("sample_ids") or [])).items():
        if count > 1:
            yield place.error(f"`eval.dataset.sample_ids` has {repeated!r} {count} times")


def _check_scorers(header: JsonObject) -> Iterator[Finding]:
    place = Place("scorers", "header")
    scorers = {str(scorer.get("name")): scorer for scorer in children(header["eval"], "scorers")}
    names = list(scorers)
    if TASKS_SCORE not in scorers:
        yield place.error(f"`eval.scorers` has no {TASKS_SCORE!r}")
        return
    if WORKSPACE_DIFF_SCORE in scorers and names[0] != WORKSPACE_DIFF_SCORE:
        yield place.error(f"{WORKSPACE_DIFF_SCORE!r} is not the first scorer")
    if misplaced := [n for n in names[names.index(TASKS_SCORE) :] if n not in RESERVED_SCORES]:
        yield place.warning(f"scorers of tasks stand behind {TASKS_SCORE!r}: {', '.join(misplaced)}")
    for name in names:
        metrics = [metric.get("name") for metric in children(scorers[name], "metrics")]
        if name not in RESERVED_SCORES and metrics != ["inspect_ai/mean"]:
            yield place.warning(f"the metrics of task {name!r} are {metrics}, not the mean")
    for result in children(child(header, "results"), "scores"):
        if result.get("scorer") not in scorers:
            yield place.error(f"`results` has {result.get('scorer')!r}, which is no scorer of the log")


def _check_reductions(archive: EvalArchive) -> Iterator[Finding]:
    if REDUCTIONS in archive.members.members and not isinstance(archive.json(REDUCTIONS), list):
        yield Place("archive", REDUCTIONS).error("it is not a list")


def _check_summary(place: Place, sample: JsonObject, summary: JsonObject | None) -> Iterator[Finding]:
    if summary is None:
        yield place.error("it has no summary")
        return
    if bool(sample.get("error")) != bool(summary.get("error")):
        yield place.error("sample and summary disagree whether it errored")
    if _values(sample) != _values(summary):
        yield place.error("sample and summary disagree about Scores")


def _values(sample: JsonObject) -> bytes:
    """The values of the Scores as text, so that NaN equals NaN."""
    scores = child(sample, "scores")
    values: dict[str, Any] = {name: child(scores, name).get("value") for name in sorted(scores)}
    return dumps(values)
