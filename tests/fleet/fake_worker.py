"""A worker whose attempts are played by nobody: the name of a job's sample says what becomes of it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

from control_tower.fleet import supervisor
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.outcomes import Category
from control_tower.fleet.ports import Clock
from control_tower.fleet.runner import RunnerSpec
from control_tower.fleet.worker import Finish

LIFETIME = "FAKE_WORKER_LIFETIME"
"""Variable: seconds after which the worker ends whatever happens, instead of a day."""


class Played:
    """`quick` completes, `full` finds the disk full, `hangs` runs until it is ended, `secret` tells all."""

    def __init__(self, spec: RunnerSpec, clock: Clock) -> None:
        self._spec = spec
        self._samples = {job.id: job.sample for job in spec.jobs}
        self._cancelled: dict[tuple[str, int], asyncio.Future[Category]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        """Starts what stands for the parent of jobs: it has left the session, and does not end by itself."""
        self._spec.scratch.mkdir(parents=True)
        self._processes.append(_sleeper())

    async def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        match self._samples[job]:
            case "hangs":
                (self._spec.scratch / "half").write_text("half a log")
                self._cancelled[job, attempt] = asyncio.get_running_loop().create_future()
                category = await self._cancelled[job, attempt]
                return Finish("preempted", b"half a log", category)
            case "full":
                return Finish("failed", None, "disk", "No space left on device")
            case "secret":
                for value in self._spec.secrets.values():
                    print("it says", value, file=sys.stderr)
                told = " ".join(self._spec.secrets.values())
                return Finish("failed", None, "eval_error", told)
            case _:
                return Finish("completed", b"log")

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        self._cancelled[job, attempt].set_result(category)

    def forget(self, job: str, attempt: int) -> None:
        pass

    def spent(self, job: str, attempt: int) -> float | None:
        return None

    def backoff(self) -> int:
        return 0


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True
    )


if __name__ == "__main__":
    supervisor.LIFETIME = float(os.environ.get(LIFETIME) or supervisor.LIFETIME)
    sys.exit(supervisor.main(processes=Played))
