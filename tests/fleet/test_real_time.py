"""The same controller and workers in real time, over a directory and SQLite."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from control_tower.fleet.controller import Controller
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.events import DiskFile, EventLog
from control_tower.fleet.keys import Keys, fleet_id, job_id
from control_tower.fleet.machines import Size
from control_tower.fleet.outcomes import Category
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Instance, Launch, Launched
from control_tower.fleet.reconcile import Policy
from control_tower.fleet.sqlite_queue import SqliteQueue
from control_tower.fleet.system_clock import SystemClock
from control_tower.fleet.worker import Finish, Place, Worker
from tests.fleet.simulator.fleet import SimLogs

JOBS = [job_id({"task": "shop/fix", "epoch": n}) for n in range(12)]


class Quick:
    """Attempts of a tenth of a second; the first of the first job fails, the last job always does.

    Someone removes the log of the second job's first attempt.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ran: list[tuple[str, int]] = []
        self.running = self.most = 0

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        self.ran.append((job, attempt))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.5)
        self.running -= 1
        failed = job == JOBS[-1] or (job, attempt) == (JOBS[0], 1)
        sample = SampleResult(
            sample=job,
            epoch=1,
            status="error" if failed else "success",
            task="shop/fix",
            model="mockllm/model",
        )
        tell(sample)
        log = json.dumps({"samples": [sample.model_dump()]}).encode()
        if failed:
            return Finish("failed", log, "eval_error", "it broke", "it broke", (sample,))
        if (job, attempt) == (JOBS[1], 1):
            return Finish("completed", self._folder / "removed.eval", samples=(sample,))
        return Finish("completed", log, samples=(sample,), usd=0.01)

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        raise AssertionError("nothing is cancelled here")

    def forget(self, job: str, attempt: int) -> None:
        assert (job, attempt) in self.ran

    def spent(self, job: str, attempt: int) -> float | None:
        return None

    def backoff(self) -> int:
        return 0


class Tasks:
    """Machines that are tasks of this event loop."""

    def __init__(self, start: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._start = start
        self.running: dict[str, asyncio.Task[None]] = {}

    async def launch(self, request: Launch) -> Launched:
        ids = [f"{request.token}-{n}" for n in range(request.count)]
        for id in ids:
            self.running.setdefault(id, asyncio.create_task(self._start(id)))
        return Launched(ids, 0)

    async def list(self, fleet: str) -> Sequence[Instance]:
        return [Instance(id, "local", gone=task.done()) for id, task in self.running.items()]

    async def terminate(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.running[id].cancel()


@pytest.mark.parametrize(("room", "most"), [(9, range(3, 7)), (0, range(1, 3))])
def test_a_fleet_in_real_time_comes_to_its_end_and_does_nothing_twice(
    room: int, most: range, tmp_path: Path
) -> None:
    keys, runner = Keys(fleet_id(JOBS)), Quick(tmp_path)
    store, random = DirectoryStore(tmp_path / "store"), Random(1)
    kept: set[asyncio.Task[None]] = set()

    def outside() -> Outside:
        clock = SystemClock()
        work, safe, done = (
            SqliteQueue(tmp_path / "queues", name, clock) for name in ("work", "safe", "done")
        )

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            kept.add(task)
            task.add_done_callback(kept.discard)

        return Outside(keys, store, work, safe, done, clock, spawn, lambda: f"{random.getrandbits(64):016x}")

    def start(id: str) -> Coroutine[Any, Any, None]:
        place = Place(id, "local", 3, room=lambda: room)
        return Worker(place, outside(), runner, random.random).run()

    async def fleet() -> int:
        tasks = Tasks(start)
        size = Size(max_workers=2, initial_workers=2, slots=3, markets=("local",))
        log = EventLog(DiskFile(tmp_path / "events.jsonl"), SystemClock().wall)
        controller = Controller(JOBS, Policy(size=size), outside(), tasks, log, SimLogs(), "test")
        code = await controller.run()
        assert all(task.done() for task in tasks.running.values())
        for task in [*kept]:
            task.cancel()
        return code

    assert asyncio.run(fleet()) == 1
    assert runner.most in most
    assert sorted(runner.ran) == sorted(
        [(job, 1) for job in JOBS] + [(JOBS[0], 2), (JOBS[1], 2), (JOBS[-1], 2), (JOBS[-1], 3)]
    )
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    done = {line["job_id"]: line for line in lines if line["type"] == "job_done"}
    assert [done[job]["status"] for job in JOBS] == ["completed"] * 11 + ["failed"]
    assert sum(line["type"] == "result" for line in lines) == 12
    assert lines[-1]["type"] == "fleet_summary"
    assert (lines[-1]["completed"], lines[-1]["failed"], lines[-1]["repeated"]) == (11, 1, 3)
    failed = tmp_path / "store" / keys.fleet / f"{JOBS[-1]}.eval"
    assert json.loads(failed.read_bytes())["samples"][0]["status"] == "error"


def test_names_of_jobs_never_change() -> None:
    identity = {"task": "shop/fix", "args": {"b": 1, "a": [0.1, "é"]}, "epoch": 1}
    assert job_id(identity) == job_id({"epoch": 1, "args": {"a": [0.1, "é"], "b": 1}, "task": "shop/fix"})
    assert job_id(identity) == "2769ef6a488e5cbe1b1d4041"
    assert fleet_id(["b", "a"]) == fleet_id(["a", "b"])
    assert fleet_id(["a", "b"], "nonce") != fleet_id(["a", "b"])
