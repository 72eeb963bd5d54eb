"""SIGKILL at any moment: what Inspect leaves is kept, the rest is played again, writes are whole."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval
from inspect_ai.log import read_eval_log
from inspect_ai.util import EarlyStop

from control_tower.errors import StateError
from control_tower.inspect_private import writing_process
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.attempts import FINGERPRINT, State
from control_tower.logs.merge import merge, merged_path
from control_tower.logs.recover import recover
from control_tower.logs.resume import find_resumable, resumable
from tests.logs.small_evals import small_task

METADATA: dict[str, Any] = {FINGERPRINT: "killed"}
IDS = [f"s{n}" for n in range(6)]

RUN = """
import sys
from pathlib import Path
from tests.logs.small_evals import run_eval
run_eval(Path(sys.argv[1]), [f"s{n}" for n in range(6)], epochs=2, metadata={"run_config_sha256": "killed"},
         pause=0.25, max_samples=2, done=Path(sys.argv[1]) / "done")
"""

REWRITE = """
import sys
from pathlib import Path
from control_tower.logs.zip_writer import new_archive
path, data = Path(sys.argv[1]), bytes(range(256)) * 40_000
round = 0
while True:
    round += 1
    with new_archive(path) as writer:
        for number in range(20):
            writer.add(f"samples/{number}_epoch_1.json", data)
        writer.add("header.json", b'{"eval": {}, "round": %d}' % round)
    print(round, flush=True)
"""


class Only:
    """Plays only some sample-epochs."""

    def __init__(self, wanted: Collection[tuple[Any, int]]) -> None:
        self.wanted = {(str(id), epoch) for id, epoch in wanted}

    async def start_task(self, task: Any, samples: Any, epochs: int) -> str:
        return "only"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        return None if (str(id), epoch) in self.wanted else EarlyStop(id=id, epoch=epoch)

    async def complete_sample(self, id: str | int, epoch: int, scores: Any) -> None: ...

    async def complete_task(self) -> dict[str, Any]:
        return {}


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], text=True, stdout=subprocess.PIPE, env=environment
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def samples_in(folder: Path) -> int:
    found = 0
    for path in folder.glob("*.eval"):
        with EvalArchive.open(path) as archive:
            found += len(archive.sample_keys())
    return found


def wait_for(folder: Path, process: subprocess.Popen[str], samples: int) -> Path:
    """The log, once it holds so many samples."""
    for _ in range(2400):
        assert process.poll() is None
        if list(folder.glob("*.eval")) and samples_in(folder) >= samples:
            return next(folder.glob("*.eval"))
        time.sleep(0.05)
    raise AssertionError("the eval wrote nothing in two minutes")


@pytest.mark.parametrize("samples", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_a_killed_run_is_continued(tmp_path: Path, samples: int) -> None:
    process = started(RUN, str(tmp_path))
    log = wait_for(tmp_path, process, samples)
    if samples:
        # So that it is not done before it was looked at.
        process.send_signal(signal.SIGSTOP)
        assert writing_process(log) == process.pid
        with pytest.raises(StateError, match=f"process {process.pid} is still running it"):
            resumable(log)
    kill(process)
    assert writing_process(log) is None

    found = find_resumable(tmp_path, "killed")
    assert found is not None
    kept = found.counts[State.FINISHED]
    assert kept >= len(list(tmp_path.glob("done/*"))) - 2
    assert kept >= samples
    assert len(found.to_run) == 12 - kept
    before = {key: state for attempt in found.attempts for key, state in attempt.states.items()}

    kept_log = recover(log, tmp_path / "elsewhere" / "recovered.eval")
    assert kept_log.status == "error"
    assert sorted(kept_log.samples) == sorted(before)
    assert len(read_eval_log(str(kept_log.output)).samples or []) == kept
    assert len(kept_log.missing) == 12 - kept

    task = small_task(IDS, epochs=2, metadata={**METADATA, **found.marker})
    task.early_stopping = Only(found.to_run)
    rest = eval(task, log_dir=str(tmp_path), display="none", log_buffer=1)[0]
    attempts = [*found.logs, Path(rest.location.removeprefix("file://"))]
    merged = merge(attempts, merged_path(attempts))

    whole = read_eval_log(str(merged.path))
    assert whole.status == "success"
    assert [(s.id, s.epoch) for s in whole.samples or []] == [(id, epoch) for epoch in (1, 2) for id in IDS]
    assert whole.results is not None
    assert whole.results.completed_samples == 12
    assert whole.results.scores[0].metrics["mean"].value == 2.5 + 1.5 / 8
    assert whole.stats.model_usage["mockllm/model"].total_tokens == 60
    taken = {r.key: r.attempt.path for r in merged.records if r.attempt}
    assert all(taken[key] == log for key in before)
    assert find_resumable(tmp_path, "killed") is None
    assert [(a["status"], a["usage_complete"]) for a in whole.metadata["resumed"]] == [
        ("started", False),
        ("success", True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.23, 0.37, 0.71])
def test_whenever_it_is_killed_at_most_one_finished_sample_a_slot_is_lost(
    tmp_path: Path, delay: float
) -> None:
    process = started(RUN, str(tmp_path))
    log = wait_for(tmp_path, process, 1)
    time.sleep(delay)
    kill(process)
    with EvalArchive.open(log) as archive:
        keys = archive.sample_keys()
        assert len({path.name for path in (tmp_path / "done").iterdir()} - {str(key) for key in keys}) <= 2
        assert sorted(map(SampleKey.of, archive.summaries())) == sorted(keys)
        for key in keys:
            assert archive.sample(key)["scores"]


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.09])
def test_a_write_that_is_killed_leaves_the_old_or_the_new_file(tmp_path: Path, delay: float) -> None:
    path = tmp_path / "log.eval"
    process = started(REWRITE, str(path))
    assert process.stdout
    done = int(process.stdout.readline())
    time.sleep(delay)
    kill(process)
    with EvalArchive.open(path) as archive:
        assert archive.header()["round"] >= done
        for name in archive.members.members:
            archive.verify(name)
