"""A fleet whose jobs were played in this process, as its workers would have left it."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import pytest

from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.fleet.documents import Claim, Seal, SealEntry
from control_tower.fleet.keys import Keys
from control_tower.fleet.plan import FleetPlan, Job, header_log, plan_fleet, publish
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.verdicts import read_verdict, verdict_meta
from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, called
from control_tower.settings import environments
from tests.fleet.memory import MemoryStore
from tests.support.toy import TOY_SANDBOX, ToyEnvironment

T = TypeVar("T")

WORKER = "local-1-abcd"


class _Toy(ScriptPolicy):
    def setup(self, view: RedView) -> None:
        sides = [task.id for task in view.side_tasks]
        if "stain" in sides:
            raise ValueError("the script does not know how to stain")
        commands = ["echo hello > greeting.txt", *(f"echo {side} > {side}ed.txt" for side in sides)]
        calls = [*(("bash", {"cmd": command}) for command in commands), ("submit", {})]
        self.outputs = [called("toy", *call, f"call-{n}") for n, call in enumerate(calls)]


@policies.register(attempts_side_task=True, scripted=True)
def toy_script() -> Policy:
    """Greets and marks; it fails on samples that ask for a stain."""
    return _Toy("toy")


def toy_run(**fields: Any) -> RunPlan:
    """Of the toy setting one honest sample, and one attack that plays and one that fails."""
    script = FunctionRef(name=f"{__name__}:toy_script")
    selection = TaskSelection(environments=("toy",), main_tasks=("greet",), side_tasks=("mark", "stain"))
    given: dict[str, Any] = {
        "kind": "control_eval",
        "task_selection": selection,
        "honest_policy": script,
        "attack_policy": script,
        "sandbox": SandboxConfig(sandbox=TOY_SANDBOX),
    }
    return RunPlan(RunConfig(**{**given, **fields}))


@contextmanager
def toy_setting() -> Generator[None]:
    """The toy environment is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(environments.ENVIRONMENTS, "toy", ToyEnvironment())
        yield


class PlayedFleet:
    """A fleet whose store is in memory."""

    def __init__(self, folder: Path, run: RunPlan, settings: FleetSettings | None = None) -> None:
        self.folder = folder
        self.run = run
        self.plan: FleetPlan = plan_fleet(run, settings or FleetSettings(), folder / "logs")
        self.keys = Keys(self.plan.fleet)
        self.store = MemoryStore()
        wait(publish(self.plan, header_log(run, folder / "header"), self.store))

    def copy(self, folder: Path) -> "PlayedFleet":
        """The same fleet, with a store of its own."""
        other = copy(self)
        other.folder, other.store = folder, MemoryStore()
        other.store.folders = {name: dict(objects) for name, objects in self.store.folders.items()}
        return other

    def job(self, sample: str, epoch: int = 1) -> Job:
        """The job of a sample whose id ends so."""
        return next(job for job in self.plan.jobs if job.sample.endswith(sample) and job.epoch == epoch)

    def play(self) -> None:
        """Plays all jobs, each as its first attempt; those whose sample errors fail."""
        for job in self.plan.jobs:
            results = run_local(
                self.run.only(job.sample), self.folder / "jobs", only=[(job.sample, job.epoch)]
            ).results
            self.claim(job)
            status = "failed" if results.errored else "completed"
            self.verdict(job, results.log.read_bytes(), status=status)

    def claim(self, job: Job, attempt: int = 1, worker: str = WORKER) -> None:
        """A worker claims an attempt."""
        claim = Claim(worker=worker, boot="b", nonce="n")
        wait(self.store.create(self.keys.claim(job.id, attempt), claim.text().encode()))

    def log(self, job: Job) -> bytes:
        """The log that is the verdict on a job."""
        found = wait(self.store.get(self.keys.verdict(job.id)))
        assert found is not None
        return found.body

    def verdict(
        self,
        job: Job,
        log: bytes,
        *,
        status: Any = "completed",
        attempt: int = 1,
        worker: str = WORKER,
        usd: float | None = None,
        sha256: str | None = None,
    ) -> None:
        """A log becomes the verdict on a job, whatever was there."""
        category = "eval_error" if status == "failed" else None
        meta = verdict_meta(status, attempt, worker, "n", usd, log, category)
        key = self.keys.verdict(job.id)
        wait(self.store.delete(key))
        wait(self.store.create(key, log, {**meta, **({"ct-sha256": sha256} if sha256 else {})}))

    def seal(self, number: int = 1) -> None:
        """Freezes what is there."""
        entries: dict[str, SealEntry] = {}
        for job in self.plan.jobs:
            if head := wait(self.store.head(self.keys.verdict(job.id))):
                seen = read_verdict(job.id, head)
                entries[job.id] = SealEntry(etag=head.etag, attempt=seen.attempt, status=seen.status)
        wait(self.store.create(self.keys.seal(number), Seal(jobs=entries).text().encode()))


def wait(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns."""
    return asyncio.run(work)
