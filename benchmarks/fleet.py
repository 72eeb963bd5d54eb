"""A fleet: what its controller takes, how fast it begins, how fast it merges, how little its slots idle."""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.ratio import Ratio

JOBS = 10_000
LOGS, LOG = 64, 8
"""How many logs are merged, and MiB of each."""

TIMES = 3
WARM = 5
"""Jobs of the fleet whose workers are warm after the first one."""

IDLE_JOBS, IDLE_WORKERS, IDLE_SLOTS = 2000, 20, 4
EVAL = ("--policy", "scripted", "-e", "demo/web_scraping", "-t", "crawl_depth", "--no-upload")


def measure() -> Iterator[Ratio]:
    """All of it."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _controller(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield _offers(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _merge(Path(folder))
    yield _idle()
    with tempfile.TemporaryDirectory() as folder:
        yield from _beginning(Path(folder))


def _controller(folder: Path) -> Iterator[Ratio]:
    found = _part("controller", folder, str(JOBS))
    each = found["cpu"] / JOBS * 1000
    yield Ratio("CPU of a fleet's controller, ms a job", each, 0.5, f"{found['cpu']:.1f} s for {JOBS} jobs")
    allowed = 150 + 200 * JOBS / 1024**2
    detail = f"{found['memory']:.0f} MiB for {JOBS} jobs"
    yield Ratio("memory of a fleet's controller over the bound", found["memory"] / allowed, 1.0, detail)


def _offers(folder: Path) -> Ratio:
    found = _part("queue", folder, str(JOBS))
    return Ratio(f"{JOBS} offers on the queue of this machine, s", found["seconds"], 3.0)


def _merge(folder: Path) -> Iterator[Ratio]:
    for name, logs, size in (("small", 2, 1024), ("large", LOGS, LOG * 1024**2)):
        asyncio.run(_write_fleet(folder, name, logs, size))
    found = _part("merge", folder)
    total = sum(log.stat().st_size for log in folder.glob("store/large/*.eval")) / 1024**2
    speed = total / found["seconds"]
    yield Ratio("merging over 200 MiB/s, time", 200 / speed, 1.0, f"{speed:.0f} MiB/s for {total:.0f} MiB")
    detail = f"{found['memory']:.0f} MiB for {total:.0f} MiB in {LOGS} logs"
    yield Ratio("memory of merging over 100 MiB", found["memory"] / 100, 1.0, detail)


def _idle() -> Ratio:
    from tests.fleet.simulator.faults import NONE
    from tests.fleet.simulator.fleet import Scenario, Simulation
    from tests.fleet.simulator.world import Machine

    began: dict[tuple[str, int], tuple[float, str]] = {}

    class Watched(Simulation):
        def begins(self, machine: Machine, job: str, attempt: int) -> None:
            began[job, attempt] = self.world.time, machine.name
            super().begins(machine, job, attempt)

    scenario = Scenario(
        1, IDLE_JOBS, IDLE_WORKERS, IDLE_SLOTS, duration=300.0, failing=0.0, doomed=0.0, faults=NONE
    )
    simulation = Watched(scenario)
    assert simulation.run() == []
    # After the last job has begun there is nothing for the others to do.
    until = max(at for at, _ in began.values())
    busy: defaultdict[str, float] = defaultdict(float)
    first: dict[str, float] = {}
    for key, (at, machine) in began.items():
        finish = simulation.ran[key]
        assert finish
        busy[machine] += min(at + finish.duration_s, until) - at
        first[machine] = min(at, first.get(machine, at))
    slots = sum((until - at) * IDLE_SLOTS for at in first.values())
    idle = 1 - sum(busy.values()) / slots
    detail = f"{IDLE_JOBS} jobs on {IDLE_WORKERS} x {IDLE_SLOTS} slots in the simulator"
    return Ratio("idle slots at jobs of 5 minutes, %", 100 * idle, 1.0, detail)


def _beginning(folder: Path) -> Iterator[Ratio]:
    places = {f"CONTROL_TOWER_{name}_DIR": str(folder / name) for name in ("DATA", "CACHE", "CONFIG")}
    env = {**os.environ, **places}
    alone: list[float] = []
    fleets: list[float] = []
    for turn in range(TIMES):
        began = time.time()
        _ct(folder, env, *EVAL, "--log-dir", f"alone-{turn}")
        alone.append(time.time() - began)
        began = time.time()
        _ct(folder, env, *EVAL, "--log-dir", f"fleet-{turn}", *_fleet())
        fleets.append(_first_result(folder / f"fleet-{turn}") - began)
    one, fleet = statistics.median(alone), statistics.median(fleets)
    detail = f"{fleet:.1f} s of {one:.1f} s"
    yield Ratio("a fleet's first result over the whole of the same eval", fleet / one, 2.0, detail)
    _ct(folder, env, *EVAL, "--epochs", str(WARM), "--log-dir", "warm", *_fleet())
    # The first one waited for everything to be loaded.
    starts = sorted(_starts(folder))[:-1]
    detail = f"from claim to sample, the median of {', '.join(f'{start:.2f}' for start in starts)}"
    yield Ratio("the start of a job on a warm worker, s", statistics.median(starts), 0.5, detail)


def _fleet() -> list[str]:
    settings = ("workers=1", "slots=1", "new_fleet=true")
    return ["--fleet", "local", *(word for item in settings for word in ("--fleet-arg", item))]


def _first_result(folder: Path) -> float:
    [events] = folder.glob("fleet/*/events.jsonl")
    lines = map(json.loads, events.read_text().splitlines())
    return next(datetime.fromisoformat(line["ts"]).timestamp() for line in lines if line["type"] == "result")


def _starts(folder: Path) -> Iterator[float]:
    """Seconds from each claim to the begin of its sample, of the fleet that played most jobs."""
    from control_tower.logs.archive import EvalArchive

    fleets = folder / "DATA" / "fleets"
    fleet = max(fleets.glob("[!.]*"), key=lambda each: len([*each.glob("claims/*")]))
    for log in fleet.glob("*.eval"):
        with EvalArchive.open(log) as archive:
            [row] = archive.summaries()
        claim = (fleet / "claims" / f"{log.stem}.1").stat().st_mtime
        yield datetime.fromisoformat(row["started_at"]).timestamp() - claim


def _ct(folder: Path, env: dict[str, str], *options: str) -> None:
    command = [str(Path(sys.executable).parent / "ct"), "run", "eval", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def _part(kind: str, folder: Path, *rest: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.fleet_parts", kind, str(folder), *rest]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


async def _write_fleet(folder: Path, name: str, logs: int, size: int) -> None:
    """A sealed fleet whose logs hold a sample of so many bytes each, which cannot be compressed."""
    from control_tower.fleet.directory import DirectoryStore
    from control_tower.fleet.documents import Claim, Seal, SealEntry
    from control_tower.fleet.keys import Keys
    from control_tower.fleet.plan import FleetFile, FleetPlan, Job, publish
    from control_tower.fleet.settings import FleetSettings
    from control_tower.fleet.verdicts import verdict_meta

    store, keys = DirectoryStore(folder / "store"), Keys(name)
    jobs = tuple(
        Job(id=f"{number:024x}", sample=f"s{number}", epoch=1, task="e/m", attack=False)
        for number in range(logs)
    )
    file = FleetFile(
        fleet=name,
        created="",
        config={},
        command=None,
        settings=FleetSettings(),
        jobs=logs,
        folder="",
        log_dir="",
    )
    header = folder / "header.eval"
    _write_log(header, [job.sample for job in jobs])
    await publish(FleetPlan(file, jobs), header, store)
    claim = Claim(worker="w", boot="b", nonce="n").text().encode()
    entries: dict[str, SealEntry] = {}
    log = folder / "job.eval"
    for job in jobs:
        _write_log(log, [job.sample], size)
        await store.create(keys.claim(job.id, 1), claim)
        etag = await store.create(
            keys.verdict(job.id), log, verdict_meta("completed", 1, "w", "n", None, log)
        )
        assert etag
        entries[job.id] = SealEntry(etag=etag, attempt=1, status="completed")
    await store.create(keys.seal(1), Seal(jobs=entries).text().encode())


def _write_log(path: Path, ids: list[str], size: int | None = None) -> None:
    from control_tower.logs.json_text import dumps
    from control_tower.logs.zip_writer import new_archive

    spec: dict[str, Any] = {
        "created": "2026-01-01T00:00:00+00:00",
        "task": "fleet",
        "dataset": {"samples": len(ids), "sample_ids": ids},
        "model": "none/none",
        "config": {},
        "eval_id": "e",
        "metadata": {"eval_version": "3.0"},
    }
    with new_archive(path) as writer:
        if size is not None:
            text = random.Random(ids[0]).randbytes(size // 2).hex()
            sample = {"id": ids[0], "epoch": 1, "input": text, "target": "", "scores": {}}
            writer.add(f"samples/{ids[0]}_epoch_1.json", dumps(sample))
            summary = {"id": ids[0], "epoch": 1, "input": "", "target": "", "scores": {}, "completed": True}
            writer.add("summaries.json", dumps([summary]))
        writer.add("header.json", dumps({"version": 2, "status": "success", "eval": spec, "plan": {}}))
