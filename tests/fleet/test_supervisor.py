"""Workers of this machine as real processes: how they start, work and end, and what is left of them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.documents import Control, Ending
from control_tower.fleet.keys import Keys, fleet_id, job_id
from control_tower.fleet.local_provider import LocalProvider, Record, worker_log, worker_scratch
from control_tower.fleet.messages import BootFailed, Bye, Hello, Message, Notice, Offer, read_message
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.plan import FleetFile, FleetPlan, Job, publish
from control_tower.fleet.ports import Launch
from control_tower.fleet.secrets_file import FileSecrets
from control_tower.fleet.settings import FleetSettings
from control_tower.fleet.sqlite_queue import SqliteQueue
from control_tower.fleet.system_clock import SPEED, SystemClock
from tests.fleet.fake_worker import LIFETIME

REPOSITORY = Path(__file__).parents[2]
FAKE = (sys.executable, "-m", "tests.fleet.fake_worker")
CANARY = "canary-7f3a9c0e51b2"
PATIENCE = 30.0


class Slower(SystemClock):
    """Of a provider: what a busy machine needs to end is not seconds of its workers."""

    def __init__(self) -> None:
        super().__init__()
        self._speed = 2.0


class Fleet:
    """A fleet of fake workers in a folder; 20 seconds of it pass in one."""

    def __init__(
        self, folder: Path, *samples: str, secrets: Mapping[str, str] | None = None, **settings: Any
    ):
        self.jobs = [Job(id=job_id({"s": s}), sample=s, epoch=1, task="e/m", attack=False) for s in samples]
        self.keys = Keys(fleet_id([job.id for job in self.jobs]))
        self.place = LocalPlace(self.keys.fleet, folder / "fleets")
        self.file = FleetFile(
            fleet=self.keys.fleet,
            created="2030-01-01T00:00:00Z",
            config={},
            command=None,
            settings=FleetSettings(slots=2, **{"idle_timeout": 600.0, **settings}),
            jobs=len(samples),
            folder=str(folder),
            log_dir=str(folder),
            secrets=tuple(secrets or ()),
        )
        self.store = DirectoryStore(self.place.root)
        (folder / "header.eval").touch()
        asyncio.run(publish(FleetPlan(self.file, tuple(self.jobs)), folder / "header.eval", self.store))
        self.place.machine.mkdir(parents=True)
        if secrets:
            asyncio.run(FileSecrets(self.place).publish(self.keys.fleet, secrets))
        self.provider = self.again()
        self.control()
        self.heard: list[Message] = []

    def again(self) -> LocalProvider:
        """The provider of another controller."""
        return LocalProvider(self.place, self.file, Slower(), FAKE)

    def control(self, turn: int = 1, **fields: Any) -> None:
        """The controller says something, or nothing new."""
        control = Control(**{"epoch": 1, "turn": turn, "mode": "run", **fields})
        asyncio.run(self.store.put(self.keys.control, control.text().encode()))

    def offer(self) -> None:
        """All jobs, as their first attempts."""
        offers = [Offer(f=self.keys.fleet, j=job.id, n=1).text() for job in self.jobs]
        queue = self._queue("work")
        asyncio.run(queue.send(offers))
        queue.close()

    def launch(self, count: int = 1, number: int = 1) -> list[str]:
        token = f"{self.keys.fleet}-{number}"
        answer = asyncio.run(self.provider.launch(Launch(self.keys.fleet, token, count, "local")))
        assert answer.missing == 0, answer.reason
        return list(answer.ids)

    def said(self, kind: type[Message], count: int = 1) -> list[Any]:
        """Waits until workers have said something."""
        queue, end = self._queue("done"), time.monotonic() + PATIENCE
        while len(found := [one for one in self.heard if isinstance(one, kind)]) < count:
            assert time.monotonic() < end, f"{self.heard}\n{self.logs()}"
            for delivery in asyncio.run(queue.receive(queue.batch, 1)):
                self.heard.append(read_message(delivery.body))
                asyncio.run(queue.ack([delivery.receipt]))
        queue.close()
        return found

    def listed(self) -> dict[str, bool]:
        """Whether each worker is gone."""
        return {one.id: one.gone for one in asyncio.run(self.provider.list(self.keys.fleet))}

    def ended(self, count: int = 1) -> None:
        """Waits until workers have ended, of which nothing may be left."""
        wait(lambda: sum(self.listed().values()) == count, self.logs)
        assert self.processes() == []
        assert not list(self.place.workers.glob("*/scratch"))

    def pid(self, worker: str) -> int:
        record = Record.read((self.place.workers / f"{worker}.json").read_bytes())
        assert record.pid is not None
        return record.pid

    def processes(self) -> list[int]:
        """All whose command line or environment names the fleet's workers or their folder."""
        own, found = os.fsencode(self.place.root), list[int]()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if own in text and int(entry.name) != os.getpid() else []
        return found

    def log(self, worker: str) -> str:
        return worker_log(self.place, worker).read_text()

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in self.place.workers.glob("*/worker.log"))

    def outcome(self, sample: str) -> Ending:
        job = next(job.id for job in self.jobs if job.sample == sample)
        path = self.place.root / self.keys.outcome(job, 1)
        wait(path.exists, self.logs)
        return Ending.read(path.read_bytes())

    def _queue(self, name: str) -> SqliteQueue:
        return SqliteQueue(self.place.queues, name, SystemClock())


def wait(until: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fleet]]:
    """Makes fleets; their workers are ended."""
    monkeypatch.setenv(SPEED, "20")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    made: list[Fleet] = []

    def make(*samples: str, **settings: Any) -> Fleet:
        made.append(Fleet(tmp_path, *samples, **settings))
        return made[-1]

    yield make
    for one in made:
        for pid in one.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_workers_say_hello_do_what_is_offered_and_leave_when_idle(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick", idle_timeout=100.0)
    ids = it.launch(2)
    began = time.monotonic()
    assert {one.worker for one in it.said(Hello, 2)} == set(ids)
    assert time.monotonic() - began < PATIENCE
    it.offer()
    it.said(Bye, 2)
    it.ended(2)
    verdict = it.place.root / it.keys.verdict(it.jobs[0].id)
    assert verdict.read_bytes() == b"log"
    (ran,) = [log for log in map(it.log, ids) if "runs" in log]
    lines = [line.partition(" ")[2] for line in ran.splitlines()]
    assert lines[0] == f"worker {lines[0].split()[1]} of fleet {it.keys.fleet} starts"
    assert lines[1:3] == ["hello, 2 slots", f"runs {it.jobs[0].id}.1"]
    assert lines[3].startswith(f"{it.jobs[0].id}.1 completed after")
    assert lines[4:] == ["bye"]


def test_terminated_workers_store_what_ran_and_leave_nothing(fleet: Callable[..., Fleet]) -> None:
    it = fleet("hangs")
    it.offer()
    ids = it.launch(2)
    it.said(Hello, 2)
    wait(lambda: "runs" in it.logs(), it.logs)
    asyncio.run(it.provider.terminate(ids[:1]))
    assert it.listed() == {ids[0]: True, ids[1]: False}
    asyncio.run(it.provider.terminate(ids))
    it.ended(2)
    ending = it.outcome("hangs")
    assert (ending.outcome, ending.category) == ("preempted", "preempted")
    assert all("bye" in it.log(worker) for worker in ids)


def test_nothing_is_left_of_a_killed_worker_when_it_is_called_gone(fleet: Callable[..., Fleet]) -> None:
    it = fleet("hangs")
    it.offer()
    (worker,) = it.launch()
    wait((worker_scratch(it.place, worker) / "jobs" / "half").exists, it.logs)
    assert len(it.processes()) == 2
    os.kill(it.pid(worker), signal.SIGKILL)
    wait(lambda: it.pid(worker) not in it.processes(), it.logs)
    assert it.processes() != [], "what it started outlives it here"
    assert it.listed() == {worker: True}
    it.ended()
    assert it.launch() == [worker]
    assert it.listed() == {worker: True}, "the same launch again brings it not back"


def test_a_stopped_process_is_ended(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick")
    (worker,) = it.launch()
    it.said(Hello)
    os.kill(it.pid(worker), signal.SIGSTOP)
    asyncio.run(it.provider.terminate([worker]))
    assert it.listed() == {worker: True}
    it.ended()


def test_a_worker_leaves_when_nothing_is_heard_of_its_fleet(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick", ttl=60.0)
    it.control(mode="pause")
    (worker,) = it.launch()
    it.said(Hello)
    for turn in range(2, 12):
        time.sleep(0.4)
        it.control(turn, mode="pause")
    assert it.listed() == {worker: False}, it.logs()
    it.ended()
    assert "nothing was heard of its fleet for 60 seconds" in it.log(worker)
    assert [one.kind for one in it.said(Notice)] == ["drain"]


def test_no_worker_gets_old(fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    it = fleet("hangs", ttl=1e9)
    monkeypatch.setenv(LIFETIME, "100")
    it.offer()
    (worker,) = it.launch()
    it.ended()
    assert it.outcome("hangs").outcome == "preempted"
    assert "ends 1 attempts" in it.log(worker)


def test_a_worker_ends_when_its_fleet_is_removed(fleet: Callable[..., Fleet]) -> None:
    it = fleet("hangs")
    it.offer()
    (worker,) = it.launch()
    wait(lambda: "runs" in it.logs(), it.logs)
    (it.place.root / it.keys.fleet_file).unlink()
    it.ended()
    assert "ends at once: its fleet was removed" in it.log(worker)


def test_a_worker_with_a_full_disk_says_so_and_leaves(fleet: Callable[..., Fleet]) -> None:
    it = fleet("full")
    it.offer()
    (worker,) = it.launch()
    assert [one.kind for one in it.said(Notice)] == ["disk"]
    it.ended()
    ending = it.outcome("full")
    assert (ending.outcome, ending.category) == ("failed", "disk")
    assert "No space left on device" in it.log(worker)


def test_the_same_launch_is_done_once_whoever_asks(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick")
    ids = it.launch(2)
    pids = [it.pid(worker) for worker in ids]
    it.provider = it.again()
    assert it.launch(2) == ids
    assert it.listed() == dict.fromkeys(ids, False)
    assert [it.pid(worker) for worker in ids] == pids
    assert not set(it.launch(1, number=2)) & set(ids)


def test_a_launch_that_was_cut_off_is_finished_not_doubled(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick")
    started, not_started = it.launch(2)
    pid = it.pid(started)
    asyncio.run(it.provider.terminate([not_started]))
    for worker in (started, not_started):
        (it.place.workers / f"{worker}.json").write_text(Record(worker=worker).text())
    it.provider = it.again()
    assert it.listed() == {started: False}
    assert it.pid(started) == pid
    assert it.launch(2) == [started, not_started]
    assert it.listed() == {started: False, not_started: False}
    assert it.pid(started) == pid


def test_nothing_is_left_of_a_worker_that_was_never_started(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick")
    (worker,) = it.launch()
    it.said(Hello)
    asyncio.run(it.provider.terminate([worker]))
    (it.place.workers / f"{worker}.json").write_text(Record(worker=worker).text())
    (worker_scratch(it.place, worker) / "begun").mkdir(parents=True)
    it.provider = it.again()
    assert it.listed() == {}
    assert not worker_scratch(it.place, worker).exists()
    assert it.launch() == [worker]
    assert it.listed() == {worker: False}


def test_a_fleet_of_the_same_jobs_in_another_folder_has_other_workers(
    fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    it = fleet("quick")
    (worker,) = it.launch()
    it.said(Hello)
    (tmp_path / "other").mkdir()
    other = Fleet(tmp_path / "other", "quick")
    assert other.keys == it.keys
    other.place.workers.mkdir(parents=True)
    (other.place.workers / f"{worker}.json").write_text(Record(worker=worker).text())
    assert other.listed() == {}
    assert it.listed() == {worker: False}


def test_secrets_are_where_nobody_sees_them(
    fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = ["DEMO_API_KEY", "SHOP_DSN", "SHOP_TOKEN", "CONTROL_TOWER_API_TOKEN", "SAME_AS_DSN"]
    for name in hidden:
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", "https://viewer.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    it = fleet("secret", secrets={"DEMO_API_KEY": CANARY, "SHOP_DSN": CANARY})
    (worker,) = it.launch()
    it.said(Hello)
    environment = Path(f"/proc/{it.pid(worker)}/environ").read_text().split("\0")
    names = {setting.partition("=")[0] for setting in environment}
    assert not names & {*hidden, "CONTROL_TOWER_API_BASE_URL"}
    assert names >= {"HOME", "PATH", "CONTROL_TOWER_DATA_DIR", "https_proxy", "TMPDIR"}
    for pid in it.processes():
        for file in ("environ", "cmdline"):
            assert CANARY.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    it.offer()
    it.outcome("secret")
    assert "it says ***" in it.log(worker)
    assert "eval_error: *** ***" in it.log(worker)
    assert CANARY not in it.log(worker)


def test_a_worker_without_its_secrets_says_which(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick", secrets={"DEMO_API_KEY": CANARY})
    asyncio.run(FileSecrets(it.place).revoke(it.keys.fleet))
    (worker,) = it.launch()
    (failed,) = it.said(BootFailed)
    assert "DEMO_API_KEY" in failed.detail
    it.ended()
    assert "cannot go on" in it.log(worker)


def test_workers_that_cannot_start_are_missing_with_a_reason(fleet: Callable[..., Fleet]) -> None:
    it = fleet("quick")
    it.file = it.file.model_copy(update={"folder": str(it.place.root / "gone")})
    answer = asyncio.run(it.again().launch(Launch(it.keys.fleet, f"{it.keys.fleet}-1", 2, "local")))
    assert (list(answer.ids), answer.missing) == ([], 2)
    assert answer.reason and "gone" in answer.reason
    assert it.listed() == {}
