"""Each private name of Inspect that we lean on still does what we need."""

import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import SampleScore, Score
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironment

from control_tower import inspect_private
from control_tower.logs.archive import EvalArchive, SampleKey
from tests.logs.small_evals import run_eval


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished log in two epochs."""
    made = run_eval(tmp_path_factory.mktemp("log"), ["a1", "a2"], epochs=2)
    return Path(made.location.removeprefix("file://"))


def test_with_role_records_calls_under_the_role(tmp_path: Path) -> None:
    seen: list[tuple[str, int, str]] = []

    @solver
    def ask() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            seen.append((*inspect_private.running_sample()[:2], state.uuid))
            assert inspect_private.running_sample()[2] == state.uuid
            assert inspect_private.sample_epoch() == state.epoch
            output = ModelOutput.from_content("mockllm/model", "hi")
            output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            model = get_model("mockllm/model", custom_outputs=[output], memoize=False)
            await inspect_private.with_role(model, "red_planner").generate("hello")
            assert model.role is None
            return state

        return solve

    task = Task(dataset=MemoryDataset([Sample(id="s", input="x")]), solver=ask(), epochs=2)
    done = eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")[0]
    assert sorted(one[:2] for one in seen) == [("s", 1), ("s", 2)]
    events = [
        event for sample in done.samples or [] for event in sample.events if isinstance(event, ModelEvent)
    ]
    assert [event.role for event in events] == ["red_planner"] * 2


HOOKED = """
from inspect_ai.hooks import Hooks, hooks

@hooks(name="loud", description="Would be named in a banner.")
class Loud(Hooks):
    pass

from control_tower.inspect_private import load_hooks_quietly

load_hooks_quietly()
from inspect_ai.model import get_model

get_model("mockllm/model")
"""


def test_hooks_are_loaded_without_a_banner() -> None:
    quiet = subprocess.run([sys.executable, "-c", HOOKED], capture_output=True, text=True, check=True)
    assert quiet.stdout == ""
    loud = HOOKED.replace("load_hooks_quietly()\nfrom", "from")
    assert (
        "loud"
        in subprocess.run([sys.executable, "-c", loud], capture_output=True, text=True, check=True).stdout
    )


def test_errors_are_watched_as_the_exceptions_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("run", "task.error", "task.run"):
        # What is replaced is put back after the test.
        name = f"inspect_ai._eval.{module}.eval_error"
        monkeypatch.setattr(name, pkgutil.resolve_name(name))
    seen: list[BaseException] = []
    inspect_private.watch_errors(seen.append)

    @solver
    def breaks() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            raise LookupError("gone")

        return solve

    task = Task(dataset=MemoryDataset([Sample(id="s", input="x")]), solver=breaks())
    done = eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")[0]
    assert seen
    assert {(type(one), str(one)) for one in seen} == {(LookupError, "gone")}
    assert done.error is not None
    assert "gone" in done.error.message


def test_outside_a_sample_there_is_none() -> None:
    assert inspect_private.sample_epoch() == 1
    assert inspect_private.running_sample() == ("", 1, "")


def test_header_model_keeps_ids(log: Path) -> None:
    with EvalArchive.open(log) as archive:
        header = archive.header()
    model = inspect_private.header_model(header)
    assert model.eval == read_eval_log(str(log), header_only=True).eval
    del header["eval"]["eval_id"]
    assert (
        inspect_private.header_model(header).eval.eval_id == inspect_private.header_model(header).eval.eval_id
    )


def test_metrics_from_a_header(log: Path) -> None:
    header = read_eval_log(str(log), header_only=True)
    [scorer] = header.eval.scorers or []
    info = inspect_private.scorer_info(header, scorer)
    assert inspect_private.score_names([info, info]) == ["points", "points1"]
    scores = [
        {"points": SampleScore(score=Score(value=value), sample_id=id)} for id, value in enumerate((1.0, 2.0))
    ]
    results, reductions = inspect_private.compute_metrics(header, [info], scores, total=3, completed=2)
    assert (results.total_samples, results.completed_samples) == (3, 2)
    assert results.scores[0].metrics["mean"].value == 1.5
    assert len(reductions[0].samples) == 2


def test_metrics_that_are_not_there(log: Path) -> None:
    header = read_eval_log(str(log), header_only=True)
    [scorer] = header.eval.scorers or []
    metrics: Any = [scorer.metrics[0].model_copy(update={"name": "nowhere/metric"})]  # type: ignore[index]
    with pytest.raises(LookupError):
        inspect_private.scorer_info(header, scorer.model_copy(update={"metrics": metrics}))
    metrics = [scorer.metrics[0].model_copy(update={"options": {"odd": 1}})]  # type: ignore[index]
    with pytest.raises(TypeError):
        inspect_private.scorer_info(header, scorer.model_copy(update={"metrics": metrics}))


def test_sample_summary_is_inspects(log: Path) -> None:
    with EvalArchive.open(log) as archive:
        kept = {SampleKey.of(row): row for row in archive.summaries()}
        assert kept
        for key, row in kept.items():
            assert inspect_private.sample_summary(archive.sample(key)) == row
    assert len(read_eval_log_sample_summaries(str(log))) == len(kept)


def test_writing_process_sees_only_a_process_that_could_have_written(tmp_path: Path, log: Path) -> None:
    from inspect_ai._util.file import filesystem
    from inspect_ai.log._recorders.buffer.database import location_dir_and_file, resolve_db_dir

    assert inspect_private.writing_process(log) is None
    running = tmp_path / "a[b].eval"
    folder, name = location_dir_and_file(filesystem(str(running)).path_as_uri(str(running)))
    database = resolve_db_dir() / folder / f"{name}.{os.getpid()}.db"
    database.parent.mkdir(parents=True, exist_ok=True)
    try:
        database.touch()
        assert inspect_private.writing_process(running) == os.getpid()
        os.utime(database, (0, 0))
        assert inspect_private.writing_process(running) is None
        database.rename(database.with_name(f"{name}.x.db"))
        assert inspect_private.writing_process(running) is None
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        database.with_name(f"{name}.{ended.pid}.db").touch()
        time.sleep(0.01)
        assert inspect_private.writing_process(running) is None
    finally:
        for left in database.parent.iterdir():
            left.unlink()
        database.parent.rmdir()


def test_the_docker_provider_has_what_ours_hands_on() -> None:
    provider = inspect_private.docker_provider()
    assert issubclass(provider, SandboxEnvironment)
    assert callable(getattr(provider, "container_file", None)), (
        "archives need paths as the container has them"
    )


def test_sandbox_types_are_those_of_all_packages() -> None:
    ours = {"bwrap", "process", "lb-docker", "replay"}
    assert ours | {"docker", "local"} <= set(inspect_private.sandbox_types())


def test_a_timeout_carries_what_was_printed() -> None:
    error = inspect_private.tool_timeout("too slow", "so far")
    assert isinstance(error, TimeoutError)
    assert getattr(error, "truncated_output", None) == "so far"


def test_gather_keeps_the_order_and_raises_the_first_exception_itself() -> None:
    import asyncio

    async def late() -> str:
        await asyncio.sleep(0.01)
        return "late"

    async def soon() -> str:
        return "soon"

    async def failing() -> str:
        raise KeyError("x")

    assert asyncio.run(inspect_private.gather([late, soon])) == ["late", "soon"]
    with pytest.raises(KeyError):
        asyncio.run(inspect_private.gather([late, failing]))


def test_score_reducers_are_found_by_name_and_made_with_arguments() -> None:
    assert {"max", "mean", "median", "mode", "at_least"} <= set(inspect_private.score_reducers())
    scores = [Score(value=10), Score(value=70)]
    assert inspect_private.score_reducer("max", {})(scores).value == 70
    assert inspect_private.score_reducer("at_least", {"k": 2, "value": 60})(scores).value == 0
    with pytest.raises(TypeError):
        inspect_private.score_reducer("max", {"k": 2})
