"""One simulated fleet: its machines, what befalls them, and what must never be."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from control_tower.fleet.controller import Controller, Pace
from control_tower.fleet.documents import Asked, Control, Ending, Reopen, Reopened, SampleResult
from control_tower.fleet.events import EventLog
from control_tower.fleet.keys import Keys
from control_tower.fleet.machines import Size
from control_tower.fleet.messages import AttemptDone, Heartbeat, Offer, read_message
from control_tower.fleet.outcomes import RULES, Category, Limits, outcome_of
from control_tower.fleet.outside import Outside
from control_tower.fleet.ports import Instance, Object
from control_tower.fleet.reconcile import Policy
from control_tower.fleet.standing import ask
from control_tower.fleet.verdicts import read_verdict
from control_tower.fleet.worker import Finish, Place, Worker
from tests.fleet.memory import MemoryStore
from tests.fleet.simulator.faults import Faults
from tests.fleet.simulator.ports import Machines, SharedQueue, SimProvider, SimQueue, SimStore, at_once
from tests.fleet.simulator.world import Machine, World

FLEET = "f" * 16
KEYS = Keys(FLEET)
_AGAIN = Asked(kind="resume", retry=("failed",))

CALM = 420.0
"""Seconds after a disturbance in which a machine may still be taken for lost."""


@dataclass(frozen=True)
class Scenario:
    """What is simulated."""

    seed: int
    jobs: int = 200
    workers: int = 20
    slots: int = 2
    duration: float = 240.0
    """Median seconds of an attempt."""
    first_longer: float = 1.0
    """How much longer first attempts take; these never fail then."""
    failing: float = 0.03
    """Attempts that fail by themselves."""
    doomed: float = 0.02
    """Jobs that always fail, half of them only until they are tried anew."""
    faults: Faults = field(default_factory=Faults)
    interrupt: tuple[tuple[float, int], ...] = ()
    """When the user presses Ctrl-C, and how often by then."""
    budget: float | None = None
    hard_budget: float | None = None
    """USD."""
    patience: float = 4 * 3600.0
    """Seconds after the last fault by which the fleet must be at its end."""


class Simulation:
    """Runs a scenario and collects what is wrong with it."""

    def __init__(self, scenario: Scenario, *, traced: bool = False) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, scenario.faults, traced=traced)
        self.jobs = [f"{number:024x}" for number in range(scenario.jobs)]
        self.store = MemoryStore()
        clock = Machine(self.world, "queues").clock
        self.queues = {name: SharedQueue(self.world, clock) for name in ("work", "safe", "done")}
        self.machines = Machines(self.world, self._boot)
        self.code: int | None = None
        self.detached = False
        self.ran: dict[tuple[str, int], Finish | None] = {}
        self.claimed: dict[tuple[str, int], tuple[float, Machine]] = {}
        self.written: dict[str, float] = {}
        self.late: defaultdict[str, list[float]] = defaultdict(list)
        self.seal = 0
        self.sealed_at = 1e18
        self.reopened: dict[str, Reopen] = {}
        """Jobs that are tried anew, and after which attempt."""
        self.reopened_at = -1e18
        self.asked_for: set[str] = set()
        """Jobs that had failed when the user asked that they be tried anew."""
        self.failures: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self.workers: dict[str, Worker] = {}
        self.heard: dict[tuple[str, int], float] = {}
        self.files: list[SimFile] = []
        self.controllers: list[tuple[Machine, Controller]] = []
        self.events_file: SimFile | None = None

    def run(self) -> list[str]:
        """Runs to the end; returns what is wrong."""
        scenario, world = self.scenario, self.world
        self._controller("controller", SimFile(world))
        if world.random.random() < scenario.faults.rival:
            start = world.random.random() * scenario.faults.until
            world.at(start, lambda: self._controller("rival", SimFile(world)))
        for at, times in scenario.interrupt:
            world.at(at, partial(self._interrupt, times))
        if scenario.faults.forged:
            world.at(60.0, self._forge)
        again = world.random.random() < scenario.faults.retry
        if again:
            world.at(world.random.random() * scenario.faults.until, self._ask_about_failures)
        violations = self._go_on()
        if again and not violations and self.sealed:
            self.ask(_AGAIN)
            return self.run_again()
        return violations

    def run_again(self) -> list[str]:
        """Starts a controller for a fleet that was left, with the same log; returns what is wrong."""
        self.code, self.detached = None, False
        for machine, _ in self.controllers:
            machine.end()
        self._controller("again", self.files[0])
        return self._go_on()

    def _go_on(self) -> list[str]:
        world, until = self.world, max(self.world.time, self.scenario.faults.until)
        world.run(lambda: self.code is not None, until + self.scenario.patience)
        if self.code is None and not world.violations:
            open_jobs = [job for job in self.jobs if not self.verdict(job)]
            world.wrong(f"I10 the fleet does not end; {len(open_jobs)} jobs open, such as {open_jobs[:3]}")
        if self.code is not None and not world.violations:
            self._check_end()
        return world.violations

    def _controller(self, name: str, file: "SimFile") -> None:
        world = self.world
        if file not in self.files:
            self.files.append(file)
            if world.faults.full and world.faulty:
                file.fill()
        if file.full:
            world.at(10.0, lambda: self._controller(name, file))
            return
        machine = Machine(world, name)
        events = EventLog(file, machine.clock.wall)
        policy = Policy(
            limits=Limits(),
            size=Size(
                max_workers=self.scenario.workers,
                initial_workers=max(1, self.scenario.workers // 2),
                slots=self.scenario.slots,
                markets=("spot", "on-demand"),
            ),
            budget=self.scenario.budget,
            hard_budget=self.scenario.hard_budget,
        )
        provider = SimProvider(machine, self.machines)
        outside = self._outside(machine)
        controller = Controller(
            self.jobs, policy, outside, provider, events, SimLogs(), name, pace=Pace(asked=30.0)
        )
        self.controllers.append((machine, controller))

        async def main() -> None:
            code = await controller.run()
            self.code, self.events_file = code, file

        machine.spawn(main())
        faults = world.faults
        if faults.crash and world.faulty:
            world.at(world.random.expovariate(1 / faults.crash), partial(self._crash, machine, name, file))
        if faults.cut_controller and world.faulty:
            self._befall(machine, faults.cut_controller, machine.cut_off)

    def _crash(self, machine: Machine, name: str, file: "SimFile") -> None:
        if self.world.faulty and machine.alive:
            machine.kill()
            file.crash()
            down = self.world.random.random() * self.world.faults.down
            self.world.at(down, lambda: self._controller(name, file))

    def crash_controller(self, machine: Machine) -> None:
        """Kills a controller now and starts it again at once."""
        machine.kill()
        self.files[0].crash()
        self._controller(machine.name, self.files[0])

    def _befall(self, machine: Machine, mean: float, what: Callable[[float], None]) -> None:
        def happen() -> None:
            if self.world.faulty and machine.alive:
                left = self.world.faults.until - self.world.time
                what(min(left, self.world.random.random() * self.world.faults.longest))
                self.world.at(self.world.random.expovariate(1 / mean), happen)

        self.world.at(self.world.random.expovariate(1 / mean), happen)

    def _boot(self, instance: Instance) -> Machine:
        world, faults = self.world, self.world.faults
        machine = Machine(world, instance.id)
        if world.chance(faults.boot_lost):
            return machine
        outside = self._outside(machine)
        runner = SimRunner(self, machine)
        place = Place(instance.id, instance.market, self.scenario.slots)
        worker = self.workers[instance.id] = Worker(place, outside, runner, world.random.random)

        async def main() -> None:
            await worker.run()
            machine.end()

        world.at(20 + world.random.random() * 60, lambda: machine.spawn(main()))
        if faults.kill and instance.market == "spot" and world.faulty:
            world.at(world.random.expovariate(1 / faults.kill), partial(self._reclaim, machine, worker))
        if faults.cut and world.faulty:
            self._befall(machine, faults.cut, machine.cut_off)
        if faults.pause and world.faulty:
            self._befall(machine, faults.pause, machine.pause)
        return machine

    def _reclaim(self, machine: Machine, worker: Worker) -> None:
        if self.world.faulty and machine.alive:
            told = self.world.random.random() < 0.5
            if told:
                self.world.note(machine.name, "is told that it will be taken back")
                machine.disturbed = self.world.time + 120
                worker.notice(120.0)
            self.world.at(120.0 if told else 0.0, machine.kill)

    def _interrupt(self, times: int) -> None:
        for machine, controller in self.controllers:
            if machine.alive and controller.state:
                controller.interrupt(times)

    def _ask_about_failures(self) -> None:
        """Asks as soon as there is a failed job."""
        verdicts = {job: verdict for job in self.jobs if (verdict := self.verdict(job))}
        failed = {job for job, verdict in verdicts.items() if verdict.meta["ct-status"] == "failed"}
        if failed:
            self.asked_for = failed
            self.ask(_AGAIN)
        elif self.world.faulty:
            self.world.at(60.0, self._ask_about_failures)

    def ask(self, asked: Asked) -> None:
        """The user asks something of the controller."""
        at_once(ask(self.store, KEYS, asked))

    def detach(self) -> None:
        """The user leaves the fleet to itself."""
        self.detached = True
        for machine, controller in self.controllers:
            if machine.alive:
                controller.detach()

    def _forge(self) -> None:
        """A hostile worker lies about jobs, and spoils accounts of attempts."""
        if self.world.faulty:
            for job in self.jobs:
                if self.world.random.random() < self.world.faults.forged:
                    key = KEYS.outcome(job, self.world.random.randint(1, 2))
                    self.store.folder(key).setdefault(key, Object("x", 7, {}, b"garbage"))
                    fields: dict[str, Any] = {"fleet": FLEET, "worker": "i-0", "boot": "x", "seq": 1}
                    self.queues["done"].put(AttemptDone(**fields, job=job, n=1, outcome="completed").text())
            self.world.at(300.0, self._forge)

    def _outside(self, machine: Machine) -> Outside:
        def queue(name: str, acked: Callable[[str], None]) -> SimQueue:
            sent = partial(self._sent, machine)
            return SimQueue(machine, self.queues[name], name, sent, acked)

        return Outside(
            KEYS,
            SimStore(machine, self.store, self._written),
            queue("work", self._offer_acked),
            queue("safe", self._offer_acked),
            queue("done", self._message_acked),
            machine.clock,
            machine.spawn,
            lambda: f"{self.world.random.getrandbits(64):016x}",
        )

    # What is checked while it runs

    def _written(self, machine: Machine, key: str, before: Object | None, after: Object) -> None:
        if job := KEYS.job_of(key):
            self._verdict_written(machine, job, before, after)
        elif key == KEYS.control and self.asked_for and Control.read(after.body).asked:
            for job in self.asked_for - self.reopened.keys():
                if (verdict := self.verdict(job)) and verdict.meta["ct-status"] == "failed":
                    self.world.wrong(f"{job} is said to be tried anew, but the store does not say so")
        elif key.startswith(KEYS.seals):
            self.seal, self.sealed_at = KEYS.number_of(key), self.world.time
        elif key.startswith(KEYS.reopenings):
            document = Reopened.read(after.body)
            if document.seal == self.seal:
                self.reopened |= document.jobs
                self.reopened_at = self.world.time
        elif key.startswith(KEYS.claims):
            found = KEYS.attempt_of(key)
            assert found
            self.claimed[found] = (self.world.time, machine)
        elif key.startswith(KEYS.attempts) and key.endswith(".json"):
            ending = Ending.read(after.body)
            if ending.outcome == "completed_late":
                self.late[ending.job].append(self.world.time)
            if ending.category and RULES[ending.category].counts == "failure":
                self.failures[ending.job].append((self.world.time, ending.n))
            verdict = self.verdict(ending.job)
            if ending.outcome == "superseded" and not (verdict and self._counts(ending, verdict)):
                self.world.wrong(f"{ending.job}.{ending.n} is superseded by a verdict that does not count")
            own = verdict and (verdict.meta["ct-attempt"], verdict.meta["ct-worker"]) == (
                str(ending.n),
                ending.worker,
            )
            if own and verdict and verdict.meta["ct-status"] == "completed":
                self.world.wrong(f"I2 {ending.job}.{ending.n} is said to be {ending.outcome}, but it won")

    def _verdict_written(self, machine: Machine, job: str, before: Object | None, after: Object) -> None:
        self.written.setdefault(job, self.world.time)
        attempt = int(after.meta["ct-attempt"])
        change = (before and before.meta["ct-status"], after.meta["ct-status"])
        old = before and self._is_old(job, before)
        if before and change != ("failed", "completed") and not (old and attempt > self.reopened[job].after):
            self.world.wrong(f"I1 the verdict on {job} is written over: {change}")
        if before and self.sealed and not old:
            self.world.wrong(f"I1 the verdict on {job} changes after the seal")
        finish = self.ran.get((job, attempt))
        if after.meta["ct-status"] == "completed":
            if finish is None or finish.outcome != "completed" or finish.log != after.body:
                self.world.wrong(f"I2 the verdict on {job} is not what attempt {attempt} came to")
        elif finish and finish.outcome == "completed" and not before:
            # It failed by then for the fleet; its success comes late.
            self.world.note(machine.name, f"{job} fails though attempt {attempt} completed")

    def _sent(self, machine: Machine, body: str) -> None:
        if '"type"' in body:
            return
        offer = Offer.read(body)
        key, previous = (offer.j, offer.n), (offer.j, offer.n - 1)
        self.world.note(machine.name, f"offers {offer.j}.{offer.n}")
        if offer.n > 1:
            if previous not in self.claimed:
                self.world.wrong(f"I5 {offer.j}.{offer.n} is offered, but {offer.n - 1} was never claimed")
            elif self._at_work(previous):
                self.world.wrong(f"I5 {offer.j}.{offer.n} is offered while the one before is heard of")
            before = self.reopened[offer.j].after if offer.j in self.reopened else 0
            failures = [at for at, n in self.failures[offer.j] if n > before and at < self.world.time - CALM]
            if len(failures) >= Limits().failures:
                self.world.wrong(f"I6 {offer.j}.{offer.n} is offered after {len(failures)} failures")
        if key in self.claimed and not self.world.faulty:
            since = max(self.claimed[key][0], self.world.faults.until)
            if self.world.time - since > 3 * CALM:
                self.world.wrong(f"{offer.j}.{offer.n} is offered again long after it was claimed")

    def _at_work(self, key: tuple[str, int]) -> bool:
        """Whether an attempt runs on a machine that was never out of reach."""
        if KEYS.outcome(*key) in self.store.folder(KEYS.attempts):
            return False
        began, machine = self.claimed[key]
        held = machine.name in self.workers and key in self.workers[machine.name].held
        calm = machine.alive and self.world.time - machine.disturbed > CALM
        heard = self.heard.get(key, -1e9) > self.world.time - 170
        return held and calm and heard and self.world.time - began > 60

    def _offer_acked(self, body: str) -> None:
        offer = Offer.read(body)
        if (offer.j, offer.n) not in self.claimed:
            self.world.wrong(f"the offer {offer.j}.{offer.n} is thrown away, but nobody claimed it")

    def _message_acked(self, body: str) -> None:
        if '"heartbeat"' in body and isinstance(message := read_message(body), Heartbeat):
            for hold in message.holds:
                self.heard[hold.job, hold.n] = self.world.time

    def begins(self, machine: Machine, job: str, attempt: int) -> None:
        """A process runs an attempt."""
        key = (job, attempt)
        if key in self.ran:
            self.world.wrong(f"I3 {job}.{attempt} is run twice")
        if key not in self.claimed or self.claimed[key][1] is not machine:
            self.world.wrong(f"I3 {job}.{attempt} is run by {machine.name}, which did not claim it")
        elif attempt > 1 and self.written.get(job, 1e18) < self.claimed[key][0]:
            verdict = self.verdict(job)
            if not (verdict and self._is_old(job, verdict)):
                self.world.wrong(f"{job}.{attempt} is run though the verdict was there before it was claimed")
        self.ran[key] = None

    # What is checked at the end

    @property
    def sealed(self) -> bool:
        """Whether the outcome is frozen."""
        return self.seal > 0 and self.reopened_at < self.sealed_at

    def _is_old(self, job: str, verdict: Object) -> bool:
        """Whether a verdict is from before its job was reopened."""
        found = read_verdict(job, verdict)
        return job in self.reopened and self.reopened[job].covers(found.attempt, found.status)

    def _counts(self, ending: Ending, verdict: Object) -> bool:
        """Whether a verdict is the last word for this attempt."""
        known = self.reopened.get(ending.job)
        return known is None or ending.n <= known.after or not self._is_old(ending.job, verdict)

    def verdict(self, job: str) -> Object | None:
        """The verdict on a job."""
        return self.store.folder(KEYS.verdicts).get(KEYS.verdict(job))

    def _check_end(self) -> None:
        if self.detached:
            return
        wrong = self.world.wrong
        alive = [name for name, (_, machine) in self.machines.machines.items() if machine.alive]
        if alive:
            wrong(f"I8 machines are left: {alive}")
        lines = self._check_file()
        if not self.sealed:
            if self.code != 130:
                wrong(f"I1 the fleet ends with {self.code}, and is not sealed")
            return
        seal = json.loads(self.store.folder(KEYS.seals)[KEYS.seal(self.seal)].body)["jobs"]
        done = {
            line["job_id"]: line
            for line in lines
            if line["type"] in ("job_done", "correction") and "sample" not in line
        }
        told = {line["job_id"]: line["attempt"] for line in lines if "sample" in line}
        failed = 0
        for job in self.jobs:
            verdict = self.verdict(job)
            if not verdict:
                wrong(f"I1 {job} is sealed without a verdict")
                continue
            status, attempt = verdict.meta["ct-status"], int(verdict.meta["ct-attempt"])
            failed += status == "failed"
            if status == "failed" and self._is_old(job, verdict):
                wrong(f"{job} was to be tried anew, and is sealed with its verdict from before")
            late = [at for at in self.late[job] if at < self.sealed_at - CALM]
            if status == "failed" and late:
                wrong(f"{job} is sealed as failed, though a success was stored at {late[0]:.0f} s")
            if seal.get(job) != {"etag": verdict.etag, "attempt": attempt, "status": status}:
                wrong(f"I1 the seal of {job} is not its verdict")
            line = done.get(job)
            if not line or (line["status"], line["attempt"]) != (status, attempt):
                wrong(f"I4 {job} was told as {line}, its verdict is {status} {attempt}")
            if status == "completed" and told.get(job) != attempt:
                wrong(f"I4 the result of {job} was told of attempt {told.get(job)}, not of {attempt}")
        if self.code != (1 if failed else 0):
            wrong(f"the exit code is {self.code}, with {failed} failed jobs")
        self._check_waste()

    def events(self) -> list[dict[str, Any]]:
        """The log of events of whoever brought the fleet to its end."""
        assert self.events_file is not None
        data = bytes(self.events_file.data)
        return [json.loads(line, parse_constant=self.world.wrong) for line in data.splitlines()]

    def _check_file(self) -> list[dict[str, Any]]:
        assert self.events_file is not None
        data, lines = bytes(self.events_file.data), self.events()
        if [line["seq"] for line in lines] != list(range(1, len(lines) + 1)):
            self.world.wrong("the events are not numbered one after the other")
        if not data.endswith(b"\n"):
            self.world.wrong("the last event is torn")
        once = Counter(line["job_id"] for line in lines if line["type"] == "job_done")
        results = Counter((line["job_id"], line["sample"]) for line in lines if line["type"] == "result")
        for key, count in [*once.items(), *results.items()]:
            if count > 1:
                self.world.wrong(f"I4 {key} is told {count} times")
        return lines

    def _check_waste(self) -> None:
        """Every further attempt must have a reason in the one before it."""
        for job, attempt in self.ran:
            if attempt == 1:
                continue
            before = (job, attempt - 1)
            began, machine = self.claimed[before]
            finish = self.ran.get(before)
            worker = self.workers.get(machine.name)
            killed = machine.killed is not None and machine.killed < began + CALM
            reasons = (
                finish is not None and finish.outcome != "completed",
                machine.killed is not None and worker and before in worker.held,
                before not in self.ran and killed,
                machine.disturbed >= began - CALM,
                self.world.failed[f"create {KEYS.claim(*before)}"] >= 4,
            )
            if not any(reasons):
                self.world.wrong(f"waste: {job}.{attempt} has no reason in {finish}")


class SimFile:
    """A log on a disk that forgets what was not synced when its machine crashes."""

    def __init__(self, world: World) -> None:
        self.data = bytearray()
        self.synced = 0
        self._world = world
        self._full_until = 0.0

    @property
    def full(self) -> bool:
        return self._world.time < self._full_until

    def fill(self) -> None:
        """Lets the disk be full now and then."""

        def happen() -> None:
            world = self._world
            if world.faulty:
                self._full_until = min(world.time + world.random.random() * 200, world.faults.until)
                world.note("disk", f"full until {self._full_until:.0f} s")
                self.fill()

        self._world.at(self._world.random.expovariate(1 / self._world.faults.full), happen)

    def read(self) -> bytes:
        return bytes(self.data)

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.synced = min(self.synced, size)

    def append(self, data: bytes) -> None:
        if self.full:
            raise OSError(28, "full")
        self.data += data

    def sync(self) -> None:
        self.synced = len(self.data)

    def crash(self) -> None:
        self.cut(self._world.random.randint(self.synced, len(self.data)))


class SimLogs:
    """Logs are JSON here."""

    def samples(self, log: bytes) -> list[SampleResult]:
        return [SampleResult.model_validate(one) for one in json.loads(log)["samples"]]

    def empty(self, job: str, category: str, summary: str | None) -> bytes:
        return json.dumps({"job": job, "failed": category, "samples": []}).encode()


class SimRunner:
    """Attempts that take their time and fail by chance."""

    def __init__(self, simulation: Simulation, machine: Machine) -> None:
        self._simulation = simulation
        self._machine = machine
        self._cancelled: dict[tuple[str, int], Category] = {}
        self._bells: dict[tuple[str, int], Any] = {}

    async def run(self, job: str, attempt: int, tell: Callable[[SampleResult], None]) -> Finish:
        simulation, scenario, key = self._simulation, self._simulation.scenario, (job, attempt)
        simulation.begins(self._machine, job, attempt)
        random = Random(f"{scenario.seed} {job} {attempt}")
        bell = self._bells[key] = self._machine.clock.bell()
        began = self._machine.world.time
        longer = scenario.first_longer if attempt == 1 else 1.0
        await bell.wait(longer * scenario.duration * random.lognormvariate(0, 0.6))
        took = self._machine.world.time - began
        if key in self._cancelled:
            category = self._cancelled[key]
            finish = Finish(
                outcome_of(category), None, category, "ended from outside", usd=0.01, duration_s=took
            )
        else:
            finish = self._ended(job, attempt, random, took)
            for sample in finish.samples:
                tell(sample)
        simulation.ran[key] = finish
        return finish

    def cancel(self, job: str, attempt: int, category: Category) -> None:
        if (job, attempt) in self._bells:
            self._cancelled[job, attempt] = category
            self._bells[job, attempt].ring()

    def forget(self, job: str, attempt: int) -> None:
        self._bells.pop((job, attempt), None)

    def spent(self, job: str, attempt: int) -> float | None:
        return 0.001 if (job, attempt) in self._bells else None

    def backoff(self) -> int:
        return 0

    def _ended(self, job: str, attempt: int, random: Random, took: float) -> Finish:
        scenario = self._simulation.scenario
        chance = Random(f"{scenario.seed} {job}").random()
        cured = job in self._simulation.reopened and chance < scenario.doomed / 2
        doomed = chance < scenario.doomed and not cured
        safe = attempt == 1 and scenario.first_longer > 1
        kinds: list[Category] = ["eval_error", "timeout", "sandbox", "rate_limit", "network", "oom_job"]
        category = "eval_error" if doomed else random.choice(kinds)
        if not safe and (doomed or random.random() < scenario.failing):
            sample = _sample(job, "error", took)
            log = json.dumps({"job": job, "n": attempt, "samples": [sample.model_dump()]}).encode()
            text = f"{category} of {job}"
            return Finish("failed", log, category, text, job, (sample,), 0.01, took)
        sample = _sample(job, "success", took)
        log = json.dumps({"job": job, "n": attempt, "samples": [sample.model_dump()]}).encode()
        return Finish("completed", log, samples=(sample,), usd=0.02, duration_s=took)


def _sample(job: str, status: str, took: float) -> SampleResult:
    return SampleResult.model_validate(
        {
            "sample": job,
            "epoch": 1,
            "status": status,
            "task": "shop/fix",
            "model": "mockllm/model",
            "scores": {"tasks": {"value": {"main": 1.0}}} if status == "success" else {},
            "error": None if status == "success" else "it broke",
            "duration_s": took,
        }
    )
