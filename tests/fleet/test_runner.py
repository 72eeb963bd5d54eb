"""Attempts in real processes: each comes to an end that says why, and nothing of it is left."""

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from control_tower.evals.run_config import FunctionRef, RunConfig, TaskSelection
from control_tower.fleet.documents import SampleResult
from control_tower.fleet.outcomes import Category
from control_tower.fleet.plan import FleetFile, Job
from control_tower.fleet.runner import ProcessRunner, RunnerSpec
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.system_clock import SystemClock
from control_tower.fleet.worker import Finish
from control_tower.logs.archive import EvalArchive
from control_tower.models.roles import parse_roles
from tests.fleet.odd_policy import EPOCHS, SECRET
from tests.support.control_groups import control_groups
from tests.support.provider_records import Answer, Call, Failure, Tokens
from tests.support.provider_stub import ProviderStub

pytestmark = pytest.mark.slow

T = TypeVar("T")

CANARY = "canary-91f2-do-not-show"
SAMPLE = "demo/order_service:refunds"
POLICY = Path(__file__).with_name("odd_policy.py")


GRACE = 30.0


class Clock(SystemClock):
    """Time that a test may let pass."""

    passed = 0.0

    def now(self) -> float:
        return super().now() + self.passed


class Attempts:
    """A runner over one run, whose epochs end in different ways."""

    def __init__(self, scratch: Path, **settings: Any) -> None:
        self.scratch = scratch
        self.clock = Clock()
        self.told: list[SampleResult] = []
        self._loop = asyncio.Runner()
        config = RunConfig(
            task_selection=TaskSelection(environments=("demo/order_service",), main_tasks=("refunds",)),
            policy=FunctionRef(name=f"{POLICY}@odd"),
            eval_args={"epochs": len(EPOCHS)},
        )
        file = FleetFile(
            fleet="0" * 16,
            created="2026-01-01T00:00:00Z",
            config={**config.model_dump(mode="json"), **settings.pop("config", {})},
            command=None,
            settings=FleetSettings(attempt_timeout=5000),
            jobs=len(EPOCHS),
            folder=str(scratch.parent),
            log_dir=str(scratch.parent),
        )
        jobs = [
            Job(id=how, sample=SAMPLE, epoch=1 + epoch, task="demo/order_service/refunds", attack=False)
            for epoch, how in enumerate(EPOCHS)
        ]
        spec = RunnerSpec(file, jobs, scratch, {SECRET: CANARY}, grace=GRACE, **settings)
        self.spec = spec
        self.runner = self.do(self._make(spec))
        self._number = 0
        self._ran: list[tuple[str, int]] = []

    async def _make(self, spec: RunnerSpec) -> ProcessRunner:
        runner = ProcessRunner(spec, self.clock)
        await runner.start()
        return runner

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def run(self, how: str) -> Finish:
        return self.do(self.running(how))

    async def running(self, how: str) -> Finish:
        self._number += 1
        self.told.clear()
        self._ran.append((how, self._number))
        return await self.runner.run(how, self._number, self.told.append)

    def cancel(self, category: Category) -> None:
        """Cancels the last attempt."""
        self.runner.cancel(*self._ran[-1], category)

    async def until_it_plays(self) -> list[psutil.Process]:
        """Waits until the sample of the one attempt plays; its processes."""
        signs = self.scratch.glob
        while not any('"sample"' in file.read_text() for file in signs("*/signs.jsonl")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        return self.processes()

    def processes(self) -> list[psutil.Process]:
        """All processes below the parent of jobs."""
        return [child for parent in self.parents() for child in parent.children(recursive=True)]

    def parents(self) -> list[psutil.Process]:
        children = psutil.Process().children()
        return [child for child in children if _is_parent(child)]

    def left(self) -> list[str]:
        """What is left of attempts when their logs were stored: processes, files, control groups."""
        for one in self._ran:
            self.runner.forget(*one)
        files = [file.name for file in self.scratch.iterdir() if file.name != "parent.log"]
        groups = [folder.name for folder in control_groups(f"ct-job-{os.getpid()}-")]
        return [*files, *groups, *map(str, alive(self.processes()))]

    def close(self) -> None:
        self.do(self.runner.close())
        self._loop.close()


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempts]:
    made = Attempts(tmp_path_factory.mktemp("fleet") / "scratch")
    yield made
    made.close()
    assert not made.scratch.exists()
    assert not made.parents()


def _is_parent(child: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "control_tower.fleet.zygote" in child.cmdline()
    return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that did not end within ten seconds; of some that did, their parent has not asked yet."""
    until = time.monotonic() + 10
    while (left := [one for one in processes if _runs(one)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _runs(one: psutil.Process) -> bool:
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def status(log: Path) -> str:
    with EvalArchive.open(log) as archive:
        return str(archive.header()["status"])


def test_a_job_that_plays_completes_with_one_result_and_the_log_of_its_one_sample(attempts: Attempts) -> None:
    finish = attempts.run("plays")

    assert (finish.outcome, finish.category, finish.usd, finish.output) == ("completed", None, 0.0, None)
    assert [*finish.samples] == attempts.told
    (result,) = finish.samples
    assert (result.sample, result.epoch, result.status, result.error) == (SAMPLE, 1, "success", None)
    assert (result.task, result.mode, result.usd) == ("demo/order_service/refunds", "honest", 0.0)
    assert result.scores["refunds"] == {"value": "C"}
    assert result.scores["linux_scorer"] == {"value": {"main_task_success": "C"}}
    assert isinstance(finish.log, Path)
    with EvalArchive.open(finish.log) as archive:
        assert archive.header()["status"] == "success"
        assert [(one["id"], one["epoch"]) for one in archive.summaries()] == [(SAMPLE, 1)]
    started = attempts.runner.start_s("plays", 1)
    assert started is not None and started < 60
    assert attempts.left() == []


def test_the_true_epoch_is_played_beside_another_job_and_an_exception_is_an_error_of_the_eval(
    attempts: Attempts,
) -> None:
    async def both() -> tuple[Finish, Finish]:
        first = asyncio.create_task(attempts.running("raises"))
        return await first, await attempts.running("plays")

    failed, played = attempts.do(both())

    assert played.outcome == "completed"
    # What its message says is somebody's text: neither a missing module nor a status.
    assert (failed.outcome, failed.category) == ("failed", "eval_error")
    assert failed.error_summary is not None
    assert failed.error_summary.startswith(
        "RuntimeError (odd_policy.py:setup): ModuleNotFoundError: status 429 at "
    )
    assert failed.fingerprint == (
        "eval_error RuntimeError odd_policy.py:setup ModuleNotFoundError: status # at #"
    )
    assert [(one.epoch, one.status) for one in failed.samples] == [(2, "error")]
    assert isinstance(failed.log, Path) and status(failed.log) == "error"


@pytest.mark.parametrize(
    ("how", "category", "summary"),
    [
        ("exits", "eval_internal", "its process ended by itself with exit code 7 while in phase sample"),
        ("killed", "oom_worker", "its process was ended from outside by SIGKILL while in phase sample"),
    ],
)
def test_a_process_that_ends_without_an_account_is_told_by_its_code(
    attempts: Attempts, how: str, category: Category, summary: str
) -> None:
    finish = attempts.run(how)

    assert (finish.outcome, finish.category, finish.error_summary) == ("failed", category, summary)
    assert (finish.samples, attempts.told) == ((), [])
    assert attempts.left() == []


@pytest.mark.parametrize(
    ("category", "outcome"), [("preempted", "preempted"), ("cancelled", "cancelled"), ("budget", "cancelled")]
)
def test_what_is_cancelled_writes_its_log_and_is_gone(
    attempts: Attempts, category: Category, outcome: str
) -> None:
    async def cancelled() -> tuple[Finish, list[psutil.Process]]:
        running = asyncio.create_task(attempts.running("waits"))
        seen = await attempts.until_it_plays()
        attempts.cancel(category)
        return await running, seen

    finish, seen = attempts.do(cancelled())

    assert len(seen) > 1, "the job and its sandbox"
    assert (finish.outcome, finish.category) == (outcome, category)
    assert isinstance(finish.log, Path) and status(finish.log) == "cancelled"
    assert not alive(seen)
    assert attempts.left() == []


def test_an_attempt_that_takes_too_long_is_ended_though_it_does_not_listen(attempts: Attempts) -> None:
    async def late() -> Finish:
        running = asyncio.create_task(attempts.running("works"))
        await attempts.until_it_plays()
        # Without a sign, but not idle: it uses a processor.
        attempts.clock.passed += 1801
        await asyncio.sleep(1.5)
        assert not running.done()
        attempts.clock.passed += 3200
        await asyncio.sleep(1.5)
        attempts.clock.passed += GRACE + 1
        return await running

    finish = attempts.do(late())

    assert (finish.outcome, finish.category) == ("failed", "timeout")
    assert isinstance(finish.log, Path) and status(finish.log) == "error"
    assert attempts.left() == []


def test_an_attempt_of_which_nothing_moves_hangs(attempts: Attempts) -> None:
    async def idle() -> Finish:
        running = asyncio.create_task(attempts.running("blocks"))
        await attempts.until_it_plays()
        for _ in range(2):
            # The first time it has just begun, which was work.
            attempts.clock.passed += 1801
            await asyncio.sleep(4)
        attempts.clock.passed += GRACE + 1
        return await running

    finish = attempts.do(idle())

    assert (finish.outcome, finish.category) == ("failed", "hung")
    assert attempts.left() == []


def test_secrets_are_shown_nowhere(attempts: Attempts) -> None:
    async def playing() -> list[bytes]:
        running = asyncio.create_task(attempts.running("waits"))
        seen = [*await attempts.until_it_plays(), *attempts.parents()]
        shown: list[bytes] = []
        for process in seen:
            for file in ("environ", "cmdline"):
                with suppress(OSError):  # a command of the sandbox may have ended
                    shown.append(Path(f"/proc/{process.pid}/{file}").read_bytes())
        attempts.cancel("cancelled")
        await running
        return shown

    shown = attempts.do(playing())
    finish = attempts.run("shows")

    assert len(shown) >= 4 and not [text for text in shown if CANARY.encode() in text]
    assert finish.category == "eval_error"
    assert finish.error_summary == "RuntimeError (odd_policy.py:setup): key *** was refused"
    assert finish.output is not None and f"'{SECRET}': '***'".encode() in finish.output
    told = [repr(finish.samples), finish.fingerprint, finish.output.decode(), repr(attempts.told)]
    assert not [text for text in told if CANARY in (text or "")]
    assert isinstance(finish.log, Path)
    with EvalArchive.open(finish.log) as log:
        members = {name: log.members.read(name) for name in log.members.members}
    assert any(b"key *** was refused" in data for data in members.values())
    assert not [name for name, data in members.items() if CANARY.encode() in data]


def test_no_part_of_a_secret_is_kept_where_a_long_output_is_cut(attempts: Attempts) -> None:
    finish = attempts.run("floods")

    assert finish.output is not None and len(finish.output) > 1_000
    assert set(finish.output.decode()) == {"*"}


def test_what_models_cost_and_refused_is_told_at_the_prices_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = tmp_path / "rates.json"
    rates.write_text(
        '{"rows": [{"model": "gpt-4o", "pricing": {"input_per_million": 3, "output_per_million": 7,'
        ' "cached_input_per_million": 1}}]}'
    )
    roles = parse_roles(("untrusted=openai/gpt-4o",))
    config = {
        "policy": {"name": "honest"},
        "model_roles": {role: spec.model_dump(mode="json") for role, spec in roles.items()},
    }
    with ProviderStub() as stub:
        for name, value in stub.environment().items():
            monkeypatch.setenv(name, value)
        stub.script(
            "openai/gpt-4o",
            [
                # The provider's own client asks twice more before anybody is told.
                *repeat(Failure(429, "Rate limit reached", "rate_limit_exceeded", 0.01), 3),
                Answer("", [Call("submit")], tokens=Tokens(uncached=2_000, output=100)),
            ],
        )
        attempts = Attempts(tmp_path / "scratch", config=config, rates=rates)
        try:
            finish = attempts.run("plays")
            spent = attempts.runner.spent("plays", 1)
            refused = [attempts.runner.backoff() for _ in range(2)]
        finally:
            attempts.close()

    assert stub.faults == []
    # 2,000 x $3 and 100 x $7 of a million.
    usd = pytest.approx(0.0067, rel=1e-9)
    assert finish.outcome == "completed", finish.error_summary
    assert (finish.usd, spent, [one.usd for one in finish.samples]) == (usd, usd, [usd])
    assert refused == [1, 0]


def test_what_is_closed_while_it_starts_leaves_nothing(attempts: Attempts, tmp_path: Path) -> None:
    before = attempts.parents()

    async def started_and_closed() -> None:
        runner = ProcessRunner(replace(attempts.spec, scratch=tmp_path / "scratch"), attempts.clock)
        starting = asyncio.create_task(runner.start())
        await asyncio.sleep(0)
        await runner.close()
        await starting

    attempts.do(started_and_closed())
    assert attempts.parents() == before
    assert not (tmp_path / "scratch").exists()


def test_jobs_are_lost_with_their_parent_and_it_is_started_again(attempts: Attempts) -> None:
    async def orphaned() -> tuple[Finish, list[psutil.Process]]:
        running = asyncio.create_task(attempts.running("waits"))
        seen = await attempts.until_it_plays()
        for parent in attempts.parents():
            os.kill(parent.pid, signal.SIGKILL)
        return await running, seen

    finish, seen = attempts.do(orphaned())

    assert (finish.outcome, finish.category) == ("failed", "worker_lost")
    assert not alive(seen)
    assert attempts.left() == []
    assert attempts.run("plays").outcome == "completed"


def test_what_cannot_be_planned_is_a_prerequisite_in_one_line(tmp_path: Path) -> None:
    selection = {"environments": ["demo/order_service"], "main_tasks": ["refund"]}
    attempts = Attempts(tmp_path / "scratch", config={"task_selection": selection})
    try:
        finish = attempts.run("plays")
        assert (finish.outcome, finish.category) == ("failed", "prerequisite")
        assert finish.error_summary == "'order_service' has no main task 'refund'; did you mean 'refunds'?"
    finally:
        attempts.close()


def test_jobs_that_cannot_be_forked_play_too_and_show_no_secrets(tmp_path: Path) -> None:
    policy = tmp_path / "threaded_policy.py"
    starts = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    policy.write_text(POLICY.read_text() + starts)
    attempts = Attempts(tmp_path / "scratch", config={"policy": {"name": f"{policy}@odd"}})

    async def playing() -> dict[int, tuple[list[str], bytes]]:
        running = asyncio.create_task(attempts.running("waits"))
        playing = asyncio.create_task(attempts.until_it_plays())
        await asyncio.wait({running, playing}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.result()
        shown: dict[int, tuple[list[str], bytes]] = {}
        for one in playing.result():
            with suppress(OSError, psutil.Error):  # a command of the sandbox may have ended
                shown[one.pid] = one.cmdline(), Path(f"/proc/{one.pid}/environ").read_bytes()
        attempts.cancel("cancelled")
        assert (await running).outcome == "cancelled"
        return shown

    try:
        shown = attempts.do(playing())
        left = attempts.left()
    finally:
        attempts.close()
    assert [words for words, _ in shown.values() if words[-1:] == ["alone"]], "a process of its own"
    assert not [words for words, environment in shown.values() if CANARY.encode() in environment]
    assert left == []
