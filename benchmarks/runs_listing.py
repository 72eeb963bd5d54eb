"""How long what lists ask takes to be answered, at 100,000 runs and 2,000,000 trajectories."""

import asyncio
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.ratio import Ratio
from control_tower.agent_runs.answers import Answers
from control_tower.agent_runs.store.interface import Row, Sort, Store
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.agent_runs.store.rows import position
from control_tower.agent_runs.store.sqlite import SqliteStore
from control_tower.agent_runs.store.tables import RUNS, TRAJECTORIES
from control_tower.agent_runs.store.where import All, Compare, Contains, Equals, Has, Where
from tests.support.mongod import running

N_RUNS, PER_RUN = 100_000, 20
SECONDS = 0.1
PAGE = 51
REPEATS = 60
LIVE = Equals("deleted", None)
NEWEST = Sort("created", descending=True)
BATCH = 1000

POLICIES = [f"ct/policy-{n}" for n in range(40)]
ENVIRONMENTS = [f"setting-{n % 5}/env_{n}" for n in range(60)]
MODELS = [f"provider/model-{n}.{n % 3}" for n in range(30)]
TEXT = "The agent read the file and wrote what it had been asked for into another one. "


def measure() -> Iterator[Ratio]:
    """The slowest of twenty answers over a tenth of a second, for each question and both stores."""
    for kind in ("sqlite", "mongo"):
        for name, (first, slow) in _run(kind, N_RUNS).items():
            detail = f"{slow * 1000:.1f} ms; the first time {first * 1000:.0f} ms"
            yield Ratio(f"{kind}: {name}", slow / SECONDS, 1.0, detail)


def run_row(number: int, random: random.Random) -> Row:
    """A run as an evaluation makes it; one of fifty is deleted."""
    environments = random.sample(ENVIRONMENTS, random.choice([1, 1, 2, 5]))
    created = _time(number * 60)
    name = f"{random.choice(['baseline', 'attack', 'sweep'])}-{number % 1000}"
    metrics = {f"{scorer}/{metric}": random.random() for scorer in ("audit", "tasks") for metric in METRICS}
    columns = {
        "created": created,
        "name": name,
        "policy": _skewed(POLICIES, random),
        "protocol": f"ct/protocol-{number % 12}",
        "task_set": f"set-{number % 7}",
        "producer": "eval" if number % 3 else "control_eval",
        "eval_version": "3.0",
        "eval_id": f"{random.getrandbits(128):032x}",
        "status": "success",
        "creator": f"user-{number % 35}",
        "alias": f"{number:032x}.eval",
        "sha256": f"{random.getrandbits(256):064x}",
        "deleted": created if number % 50 == 0 else None,
        "cost": random.expovariate(0.1) if number % 10 else None,
        "trajectories": PER_RUN,
        "tags": [_skewed(TAGS, random) for _ in range(3)] + [f"experiment-{number // 50}"],
        "policies": random.sample(POLICIES, 2),
        "environments": environments,
        "environments_short": [name.partition("/")[2] for name in environments],
        "main_tasks": [f"main_{n}" for n in random.sample(range(300), 3)],
        "side_tasks": [f"side_{n}" for n in random.sample(range(200), 2)],
        "models": random.sample(MODELS, 2),
        "monitors": [f"monitor-{number % 9}"],
        "metrics": metrics,
    }
    listed = {"run_id": f"{number:032x}", "name": name, "metrics": metrics, "text": TEXT}
    return Row(_run_id(number), columns, listed, {"header": {**listed, "notes": TEXT * 20}})


METRICS = ("safety", "usefulness", "auroc", "accuracy", "stderr")
TAGS = [f"tag-{n}" for n in range(200)]


def trajectory_row(number: int, random: random.Random) -> Row:
    """One of the trajectories of a run."""
    run, place = divmod(number, PER_RUN)
    environment = random.choice(ENVIRONMENTS)
    attack = place % 2
    columns = {
        "run_id": _run_id(run),
        "position": place,
        "created": _time(run * 60),
        "creator": f"user-{run % 35}",
        "environment": environment,
        "environment_short": environment.partition("/")[2],
        "stream": "attack" if attack else "honest",
        "outcome_main": random.choice(["pass", "fail", "unscored"]),
        "outcome_side": random.choice(["pass", "fail"]) if attack else None,
        "error": "TimeoutError" if number % 97 == 0 else None,
        "max_suspicion": random.uniform(0, 100),
        "traj_suspicion": random.uniform(0, 100) if number % 2 else None,
        "unscored_verdicts": number % 3,
        "cost": random.random(),
        "actions": random.randrange(200),
        "main_tasks": [f"main_{random.randrange(300)}"],
        "side_tasks": [f"side_{random.randrange(200)}"] if attack else [],
        "tags": [_skewed(TAGS, random)],
    }
    identity = f"{number * 2654435761 % 2**32:08x}{number:024x}"
    listed = {"trajectory_id": identity, "environment_id": environment, "description": TEXT * 2}
    return Row(identity, columns, listed, {**listed, "tasks": TEXT * 22})


def _run_id(number: int) -> str:
    return f"{number * 2654435761 % 2**32:08x}{number:024x}"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(1_700_000_000 + seconds))


def _skewed(values: list[str], random: random.Random) -> str:
    return values[min(int(random.expovariate(8) * len(values)), len(values) - 1)]


def questions(store: Store, runs: int) -> dict[str, Callable[[random.Random], Awaitable[object]]]:
    """What is asked, with what changes from time to time drawn anew; counts are remembered, as servers do."""
    answers = Answers(lambda: store.written[RUNS.name])

    def remembered(asked: Callable[..., Awaitable[object]], *args: object) -> Awaitable[object]:
        return answers.of((asked.__name__, args), lambda: asked(*args))

    def listed(*parts: Where, sort: Sort = NEWEST) -> Awaitable[object]:
        return store.find(RUNS, All((LIVE, *parts)), sort=sort, limit=PAGE)

    async def further(random: random.Random) -> object:
        row = run_row(random.randrange(runs), random)
        return await store.find(RUNS, LIVE, sort=NEWEST, after=position(row, NEWEST), limit=PAGE)

    def trajectories(*parts: Where, sort: Sort = NEWEST) -> Awaitable[object]:
        return store.find(TRAJECTORIES, All(parts), sort=sort, limit=PAGE)

    def environment(random: random.Random) -> Equals:
        return Equals("environment", random.choice(ENVIRONMENTS))

    metric = Sort("metrics", True, "audit/safety")
    return {
        "first page": lambda _: listed(),
        "further page": further,
        "page of a tag": lambda random: listed(Has("tags", _skewed(TAGS, random))),
        "page of a rare tag": lambda random: listed(
            Has("tags", f"experiment-{random.randrange(runs // 50)}")
        ),
        "page of two tags": lambda _: listed(Has("tags", "tag-1"), Has("tags", "tag-90")),
        "page of a policy and an environment": lambda random: listed(
            Equals("policy", _skewed(POLICIES, random)),
            Has("environments_short", f"env_{random.randrange(60)}"),
        ),
        "page of a user since a day": lambda random: listed(
            Equals("creator", f"user-{random.randrange(35)}"), Compare("created", ">=", _time(runs * 30))
        ),
        "page by a metric": lambda _: listed(sort=metric),
        "page by a metric, of a tag": lambda random: listed(Has("tags", _skewed(TAGS, random)), sort=metric),
        "page of a metric above a bound": lambda _: listed(Compare("metrics", ">", 0.99, "audit/safety")),
        "page by cost": lambda _: listed(sort=Sort("cost", descending=True)),
        "page by name": lambda _: listed(sort=Sort("name")),
        "page of a word in the name": lambda random: listed(
            Contains("name", f"SWEEP-{random.randrange(1000)}")
        ),
        "facet of policies": lambda _: remembered(store.facet, RUNS, "policy", LIVE),
        "facet of tags": lambda _: remembered(store.facet, RUNS, "tags", LIVE),
        "facet of tags, of a policy": lambda random: remembered(
            store.facet, RUNS, "tags", All((LIVE, Equals("policy", _skewed(POLICIES, random))))
        ),
        "count": lambda _: remembered(store.count, RUNS, LIVE),
        "count of a tag": lambda random: remembered(
            store.count, RUNS, All((LIVE, Has("tags", _skewed(TAGS, random))))
        ),
        "total of trajectories": lambda _: remembered(store.total, RUNS, "trajectories", LIVE),
        "trajectories of a run": lambda random: trajectories(
            Equals("run_id", _run_id(random.randrange(runs))), sort=Sort("position")
        ),
        "trajectories of an environment": lambda random: trajectories(environment(random)),
        "trajectories of a task": lambda random: trajectories(
            Has("main_tasks", f"main_{random.randrange(300)}")
        ),
        "count of trajectories of an environment": lambda random: remembered(
            store.count, TRAJECTORIES, environment(random)
        ),
        "a trajectory": lambda random: store.get(TRAJECTORIES, [f"{random.randrange(runs):032x}"]),
    }


async def _fill(store: Store, runs: int) -> None:
    draw = random.Random(1)
    for start in range(0, runs * PER_RUN, BATCH):
        await store.insert(TRAJECTORIES, [trajectory_row(n, draw) for n in range(start, start + BATCH)])
    for start in range(0, runs, BATCH):
        await store.insert(RUNS, [run_row(n, draw) for n in range(start, min(runs, start + BATCH))])


async def _ask(store: Store, runs: int) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, ask in questions(store, runs).items():
        draw, times = random.Random(2), list[float]()
        began = time.perf_counter()
        await ask(draw)
        first = time.perf_counter() - began
        until = time.monotonic() + 20
        while len(times) < REPEATS and (len(times) < 5 or time.monotonic() < until):
            began = time.perf_counter()
            await ask(draw)
            times.append(time.perf_counter() - began)
        found[name] = first, sorted(times)[math.ceil(len(times) * 0.95) - 1]
    return found


def _run(kind: str, runs: int, folder: Path | None = None) -> dict[str, tuple[float, float]]:
    """Seconds of each question, the first time and the 95th percentile of the times after it.

    Rows that are in the folder already are used again.
    """

    async def work(store: Store) -> dict[str, tuple[float, float]]:
        await store.open()
        began = time.monotonic()
        if not await store.find(RUNS, limit=1):
            await _fill(store, runs)
        print(f"{kind}: {runs} runs made in {time.monotonic() - began:.0f} s", file=sys.stderr)
        found = await _ask(store, runs)
        await store.close()
        return found

    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kind == "sqlite":
            store: Store = SqliteStore(place / "runs.sqlite")
        else:
            store = MongoStore(stack.enter_context(running(place, cache_gb=2)).uri("runs"))
        return asyncio.run(work(store))


if __name__ == "__main__":
    found = _run(sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:]))
    for name, (first, slow) in found.items():
        print(json.dumps({"question": name, "ms": round(slow * 1000, 2), "first": round(first * 1000)}))
