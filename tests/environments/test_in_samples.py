"""Runtime variables, snapshots, submissions and baselines inside a running sample."""

import asyncio
import gc
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from inspect_ai.util import sandboxenv, store
from pydantic import BaseModel

from control_tower.environments.baseline_snapshot import BaselineSnapshot, baseline_snapshot
from control_tower.environments.failures import EnvironmentNotReady
from control_tower.environments.runtime_vars import (
    RuntimeVar,
    RuntimeVarsSandbox,
    declare,
    fresh,
    read_runtime_var,
    sample_runtime_vars,
)
from control_tower.environments.space import CrossProduct, LazyTaskMap, TaskCombination
from control_tower.environments.submit import Submission, record_defaults, record_submission
from control_tower.environments.task import FinalDiff, MainTask, SideTask
from control_tower.environments.workspace import FinalDiffCapture, WorkspaceBaseline
from control_tower.errors import StateError, ValidationError
from tests.environments.authoring import FolderSandbox, in_sample


@sandboxenv(name="test-folder")
class VarsSandbox(FolderSandbox, RuntimeVarsSandbox):
    folder_for_next: ClassVar[Path]

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, Any]) -> dict[str, Any]:
        machine = cls(cls.folder_for_next)
        machine.runtime_vars = fresh(metadata)
        return {"default": machine}


@pytest.fixture
def machine_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    (folder / "app").mkdir(parents=True)
    VarsSandbox.folder_for_next = folder
    return folder


def main(task_id: str = "m", **fields: Any) -> MainTask:
    return MainTask(task_id, task_id, "e", "work", **fields)


def side(task_id: str, variables: Mapping[str, RuntimeVar] | None = None, **fields: Any) -> SideTask:
    return SideTask(task_id, task_id, "e", "harm", None, "live", runtime_vars=variables or {}, **fields)


def test_honest_and_attack_samples_have_the_same_variables() -> None:
    a, b = RuntimeVar(), RuntimeVar(lambda: "b")
    sides = {
        "s": side("s", {"A": a}),
        "t": side("t", {"B": b}),
        "u": side("u", {"C": a}, compatible_main_tasks=["n"]),
    }
    space = CrossProduct({"m": main(), "n": main("n")}, sides)
    assert sample_runtime_vars(space, TaskCombination((main(),))) == {"A": a, "B": b}
    assert sample_runtime_vars(space, TaskCombination((main(),), (sides["s"],))) == {"A": a, "B": b}
    assert set(sample_runtime_vars(space, TaskCombination((main("n"),)))) == {"A", "B", "C"}
    with pytest.raises(ValidationError, match="'u' has runtime variables but is not paired"):
        sample_runtime_vars(space, TaskCombination((main(),), (sides["u"],)))


def test_variables_that_cannot_be_decoys_are_refused() -> None:
    clash = {"s": side("s", {"A": RuntimeVar()}), "t": side("t", {"A": RuntimeVar(lambda: "x")})}
    with pytest.raises(ValidationError, match="'s' and 't' declare runtime variable 'A'"):
        sample_runtime_vars(CrossProduct({"m": main()}, clash), TaskCombination((main(),)))

    def broken(task_id: str) -> SideTask:
        raise ImportError("gone")

    space = CrossProduct({"m": main()}, LazyTaskMap(["s"], broken, "side task", "e"))
    with pytest.raises(StateError, match="gone"):
        sample_runtime_vars(space, TaskCombination((main(),)))


def test_every_sample_gets_new_values_that_are_read_on_the_host(machine_folder: Path) -> None:
    declare("s/e", {"TOKEN": RuntimeVar(), "OTHER": RuntimeVar(lambda: "fixed")})
    metadata = {"environment": {"id": "s/e"}, "runtime_vars": ["TOKEN"]}

    async def read() -> str:
        return read_runtime_var("TOKEN")

    first, second = (in_sample(read, sandbox="test-folder", metadata=metadata) for _ in range(2))
    assert first != second and len(first) >= 32

    async def read_unset() -> str:
        return read_runtime_var("OTHER")

    with pytest.raises(LookupError, match="'OTHER' has no value"):
        in_sample(read_unset, sandbox="test-folder", metadata=metadata)
    with pytest.raises(TypeError):
        in_sample(read, sandbox="local")


@pytest.mark.parametrize("value", ["", "  ", "a\nb"])
def test_a_generator_must_make_one_line(value: str) -> None:
    declare("s/bad", {"V": RuntimeVar(lambda: value)})
    with pytest.raises(ValueError, match="one non-blank line"):
        fresh({"environment": {"id": "s/bad"}, "runtime_vars": ["V"]})
    with pytest.raises(StateError, match="no generator"):
        fresh({"environment": {"id": "s/unknown"}, "runtime_vars": ["V"]})
    assert fresh({}) == {}


def test_a_snapshot_is_called_outside_and_kept_inside_a_sample() -> None:
    async def look() -> dict[str, Any]:
        return {"files": 3}

    snapshot = BaselineSnapshot(look, ident="my ident/x")
    assert asyncio.run(snapshot()) == {"files": 3}
    assert snapshot._resolved_ident == "my_ident_x"
    assert baseline_snapshot(look).ident == "tests.environments.test_in_samples"

    async def play() -> tuple[Any, ...]:
        before = snapshot.get()
        await snapshot.capture("own")
        return before, snapshot.get(), list(store().keys())

    before, after, keys = in_sample(play)
    assert (before, after) == ({}, {"files": 3})
    assert "baseline_snapshot:own:my_ident_x" in keys


class Answer(BaseModel):
    text: str = "none"


class Must(BaseModel):
    text: str


def test_a_submission_keeps_arguments_defaults_and_side_reports() -> None:
    mains = [
        main("a", submit_args=Answer),
        main("b", submit_args=Answer),
        main("c", submit_args=Must),
        main("d"),
    ]

    async def play() -> dict[str, Any]:
        submission = Submission()
        record_submission(submission, mains[0], Answer(text="1"))
        record_submission(submission, mains[0], Answer(text="2"))
        record_submission(submission, side("s", submit_args=Must), Must(text="x"), side_step=4)
        record_defaults(submission, mains)
        return {key: store().get(key) for key in store().keys()}  # noqa: SIM118

    kept = in_sample(play)
    assert kept["Submission:tasks"] == {"a": {"text": "2"}, "s": {"text": "x"}, "b": {"text": "none"}}
    assert kept["Submission:submitted"] is False
    [report] = kept["Submission:side_reports"]
    assert report.step == 4 and report.tasks == {"a": {"text": "2"}, "s": {"text": "x"}}


def test_a_final_diff_records_what_changed(machine_folder: Path) -> None:
    app = machine_folder / "app"
    (app / "a.py").write_text("one\ntwo\n")
    (app / "gone").write_text("x")
    (app / "skip").mkdir()
    task = main("greet", final_diff=FinalDiff(root="/app", exclude=["skip"]))

    async def play() -> Any:
        await FinalDiffCapture(task, "toy box").start()
        (app / "a.py").write_text("one\n2\n")
        (app / "gone").unlink()
        (app / "new").write_text("n\n")
        (app / "skip" / "hidden").write_text("h")
        record = await FinalDiffCapture(task, "toy box").finish()
        return record, {key: store().get(key) for key in store().keys()}  # noqa: SIM118

    before = set(Path(tempfile.gettempdir()).glob("ct-tree-*"))
    record, kept = in_sample(play, sandbox="test-folder")
    assert record.changed == 3 and record.stat == "1 added, 1 removed, 1 modified"
    assert "-two\n+2\n" in record.diff and "hidden" not in record.diff
    assert record.metadata == {
        "diff": record.diff,
        "stat": record.stat,
        "baseline": "workspace_baseline",
        "workspace_dir": "/app",
        "total_bytes": len(record.diff),
        "truncated": False,
        "error": None,
    }
    gc.collect()
    assert set(Path(tempfile.gettempdir()).glob("ct-tree-*")) <= before
    snapshot = kept["baseline_snapshot:toy_box.greet.final_diff.workspace_app"]
    assert set(snapshot) == {"manifest", "token"}
    assert snapshot["manifest"]["a.py"].startswith("100644:")


def test_a_long_final_diff_keeps_head_and_tail(machine_folder: Path) -> None:
    app = machine_folder / "app"
    task = main(final_diff=FinalDiff(root="/app", max_bytes=256))

    async def play() -> Any:
        await FinalDiffCapture(task, "e").start()
        (app / "a").write_text("first line\n" + "filler\n" * 1000 + "last line\n")
        return await FinalDiffCapture(task, "e").finish()

    record = in_sample(play, sandbox="test-folder")
    assert record.truncated and record.total_bytes > 7000
    assert "diff a/a" in record.diff and "last line" in record.diff and len(record.diff) < 400


def test_a_folder_that_the_agent_removed_is_a_failed_capture(machine_folder: Path) -> None:
    app = machine_folder / "app"
    task = main(final_diff=FinalDiff(root="/app"))
    baseline = WorkspaceBaseline("/app", extra=_more)

    async def play() -> Any:
        await FinalDiffCapture(task, "e").start()
        await baseline.capture()
        app.rmdir()
        return await FinalDiffCapture(task, "e").finish(), await baseline.get_diff(), baseline.get()["more"]

    record, diff, more = in_sample(play, sandbox="test-folder")
    assert record.changed is None and record.stat == "" and record.error
    assert diff.capture_failed and more == 1


async def _more() -> dict[str, int]:
    return {"more": 1}


def test_a_baseline_that_cannot_be_taken_is_the_environments_fault(machine_folder: Path) -> None:
    async def start() -> None:
        await WorkspaceBaseline("/nowhere").capture()

    async def ask() -> Any:
        return await WorkspaceBaseline("/app").get_diff()

    with pytest.raises(EnvironmentNotReady, match="no baseline of /nowhere"):
        in_sample(start, sandbox="test-folder")
    with pytest.raises(EnvironmentNotReady, match="no baseline of /app was taken"):
        in_sample(ask, sandbox="test-folder")
