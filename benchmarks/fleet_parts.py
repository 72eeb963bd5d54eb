"""Parts of a fleet in a process of their own: `fleet_parts controller|worker|queue|merge FOLDER ...`."""

import asyncio
import json
import random
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from control_tower.fleet.controller import Controller
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.events import DiskFile, EventLog
from control_tower.fleet.keys import Keys, job_id
from control_tower.fleet.machines import Size
from control_tower.fleet.messages import Offer
from control_tower.fleet.outcomes import Category, Verdict
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Instance, Launch, Launched
from control_tower.fleet.reconcile import Policy
from control_tower.fleet.sqlite_queue import SqliteQueue
from control_tower.fleet.system_clock import SystemClock
from control_tower.fleet.tasks import Tasks
from control_tower.fleet.worker import Finish, Place, Worker

FLEET = "f" * 16
SLOTS = 64
SENDERS = 8


class Nothing:
    """Runs attempts that are done at once; also knows such logs."""

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        """Says that the sample succeeded."""
        sample = SampleResult(
            sample=job,
            epoch=1,
            status="success",
            task="shop/fix",
            model="mockllm/model",
            mode="honest",
            scores={"tasks": {"value": {"main": 1.0, "side": None, "landed_at": None}}},
        )
        tell(sample)
        return Finish("completed", b"log", samples=(sample,), usd=0.01, duration_s=1.0)

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        """Nothing runs."""

    def forget(self, job: str, attempt: int) -> None:
        """Nothing is known."""

    def spent(self, job: str, attempt: int) -> float | None:
        """Nothing."""
        return None

    def backoff(self) -> int:
        """Never."""
        return 0

    def samples(self, log: bytes) -> Sequence[SampleResult]:
        """None is read again."""
        return ()

    def empty(self, job: str, category: Verdict, summary: str | None) -> bytes:
        """No job fails."""
        raise AssertionError(job)


class OneProcess:
    """A machine that is a process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def launch(self, request: Launch) -> Launched:
        """Starts it."""
        command = [sys.executable, "-m", "benchmarks.fleet_parts", "worker", str(self._folder)]
        self._process = self._process or subprocess.Popen(command)  # noqa: ASYNC220
        return Launched(["worker"], request.count - 1)

    async def list(self, fleet: str) -> Sequence[Instance]:
        """It."""
        process = self._process
        return [Instance("worker", "local", gone=process.poll() is not None)] if process else []

    async def terminate(self, ids: Sequence[str]) -> None:
        """Ends it."""
        if self._process:
            self._process.terminate()


def jobs(count: int) -> list[str]:
    """Ids of jobs."""
    return [job_id({"number": number}) for number in range(count)]


def outside(folder: Path, tasks: Tasks) -> Outside:
    """A directory and SQLite."""
    clock = SystemClock()
    work, safe, done = (SqliteQueue(folder / "queues", name, clock) for name in ("work", "safe", "done"))
    store = DirectoryStore(folder / "store")
    return Outside(Keys(FLEET), store, work, safe, done, clock, tasks.spawn, lambda: secrets.token_hex(8))


async def control(folder: Path, count: int) -> dict[str, float]:
    """Controls a fleet from beginning to end; CPU seconds and MiB of this process."""
    tasks, size = Tasks(), Size(max_workers=1, initial_workers=1, slots=SLOTS, markets=("local",))
    log = EventLog(DiskFile(folder / "events.jsonl"), SystemClock().wall)
    everything, began = jobs(count), time.process_time()
    controller = Controller(
        everything,
        Policy(size=size),
        outside(folder, tasks),
        OneProcess(folder),
        log,
        Nothing(),
        "benchmark",
    )
    assert await tasks.run(controller.run()) == 0
    cpu = time.process_time() - began
    return {"cpu": cpu, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


async def work(folder: Path) -> None:
    """Is the worker."""
    tasks = Tasks()
    worker = Worker(Place("worker", "local", SLOTS), outside(folder, tasks), Nothing(), random.random)
    await tasks.run(worker.run())


async def offer(folder: Path, count: int) -> dict[str, float]:
    """Offers jobs as a controller does; seconds."""
    queue = outside(folder, Tasks()).work
    texts = [Offer(f=FLEET, j=job, n=1).text() for job in jobs(count)]
    batches = [texts[at : at + queue.batch] for at in range(0, count, queue.batch)]

    async def send(some: Sequence[Sequence[str]]) -> None:
        for batch in some:
            assert not await queue.send(batch)

    began = time.perf_counter()
    await asyncio.gather(*(send(batches[at::SENDERS]) for at in range(SENDERS)))
    return {"seconds": time.perf_counter() - began}


async def merge(folder: Path) -> dict[str, float]:
    """Merges a small fleet, so that everything is loaded, and then a large one; seconds and MiB more."""
    import psutil

    from control_tower.fleet.merge import merge_fleet

    store = DirectoryStore(folder / "store")
    await merge_fleet(store, "small", folder / "merged")
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    await merge_fleet(store, "large", folder / "merged")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "memory": (peak - before) / 1024**2}


def main(kind: str, folder: Path, *rest: str) -> None:
    """Prints what was measured."""
    if kind == "worker":
        asyncio.run(work(folder))
        return
    measured = {
        "controller": lambda: control(folder, int(rest[0])),
        "queue": lambda: offer(folder, int(rest[0])),
        "merge": lambda: merge(folder),
    }[kind]
    print(json.dumps(asyncio.run(measured())))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
