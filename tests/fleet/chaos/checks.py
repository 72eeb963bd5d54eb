"""What must be true of a fleet when it has ended, whatever was done to it."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from control_tower.logs.archive import EvalArchive
from control_tower.logs.validate import validate_log
from control_tower.sandbox.owners import owner_is_dead
from tests.fleet.chaos.fleet import CANARY, ChaosFleet
from tests.support.control_groups import control_groups

_OF_A_MACHINE = {"queues.sqlite", "queues.sqlite-wal", "queues.sqlite-shm", "header.log", "workers"}


def check_ended(fleet: ChaosFleet) -> None:
    """All of the below."""
    for check in (check_jobs, check_events, check_waste, check_log, check_nothing_left, check_canary):
        check(fleet)


def check_jobs(fleet: ChaosFleet) -> None:
    """Each job has one accepted result, of an attempt that somebody claimed; no attempt ran after it."""
    assert fleet.store is not None
    seal = json.loads((fleet.store / "seal" / "1.json").read_bytes())["jobs"]
    assert len(seal) == fleet.jobs
    assert fleet.verdicts == set(seal)
    claims, endings = fleet.claims, fleet.endings()
    for job, entry in seal.items():
        assert entry["status"] == "completed", (job, entry)
        assert (job, entry["attempt"]) in claims
        numbers = sorted(n for one, n in claims if one == job)
        assert numbers == list(range(1, len(numbers) + 1)), (job, numbers)
        # Of the inode: when it got its name, not when it was written.
        decided = (fleet.store / f"{job}.eval").stat().st_ctime
        for n in numbers:
            late = (fleet.store / "claims" / f"{job}.{n}").stat().st_ctime > decided
            if late and n != entry["attempt"]:
                ending = endings.get((job, n))
                assert ending is None or ending["outcome"] == "superseded", (job, n, ending)


def check_events(fleet: ChaosFleet) -> None:
    """Strict JSON without gaps; each job and each sample counted once."""
    text = fleet.events_file.read_text()
    assert text.endswith("\n")
    events = [json.loads(line, parse_constant=_refuse) for line in text.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    done = Counter(event["job_id"] for event in events if event["type"] == "job_done")
    assert done == Counter(fleet.verdicts)
    results = Counter(
        (event["job_id"], str(event["sample"]), event["epoch"])
        for event in events
        if event["type"] == "result"
    )
    assert len(results) == fleet.jobs
    assert set(results.values()) == {1}
    seal = json.loads((fleet.store / "seal" / "1.json").read_bytes())["jobs"] if fleet.store else {}
    told = {event["job_id"]: event["attempt"] for event in events if event["type"] == "job_done"}
    assert told == {job: entry["attempt"] for job, entry in seal.items()}
    [*_, summary] = [event for event in events if event["type"] == "fleet_summary"]
    assert (summary["completed"], summary["failed"]) == (fleet.jobs, 0)


_BEFELL = {"worker_lost", "preempted", "disk", "oom_worker", "worker_died", "sandbox"}


def check_waste(fleet: ChaosFleet) -> None:
    """An attempt is followed by another only where something is known to have befallen it."""
    ended = {
        (event["job_id"], event["attempt"]): event["failure_category"]
        for event in fleet.events
        if event["type"] == "attempt_done"
    }
    followed = [(job, n) for job, n in fleet.claims if (job, n + 1) in fleet.claims]
    assert {ended.get(one) for one in followed} <= _BEFELL, {one: ended.get(one) for one in followed}


def check_log(fleet: ChaosFleet) -> None:
    """One merged log, with every sample and epoch once, each played to its end and scored."""
    [log] = (fleet.folder / "logs").glob("*.eval")
    assert validate_log(log) == []
    with EvalArchive.open(log) as archive:
        assert archive.header()["status"] == "success"
        rows = list(archive.summaries())
    keys = Counter((row["id"], row["epoch"]) for row in rows)
    assert len(keys) == len(rows) == fleet.jobs
    assert not [row["id"] for row in rows if row.get("error")]


_LAST = 15.0
"""Seconds for what ends by itself, as the maker of the header of a command that was killed."""


def check_nothing_left(fleet: ChaosFleet) -> None:
    """No process, group of processes, temporary file, lease or file of secrets of it is there any more."""
    until = time.monotonic() + _LAST
    while (left := [one.command for one in fleet.processes()]) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == [], left
    owners = {record["pid"] for record in workers(fleet)}
    orphans = [path for path in control_groups("ct-") if owner_is_dead(path.name)]
    assert [path for path in orphans if owner_of(path) in owners] == []
    assert list((fleet.folder / "tmp").iterdir()) == []
    at_home = [path for path in (fleet.folder / "home").rglob("*") if not path.is_dir()]
    # Inspect keeps the last ten traces of its processes, and the name of the last log.
    assert [path for path in at_home if path.parent.name not in ("traces", "view")] == []
    assert [path.name for path in (fleet.folder / "logs").iterdir() if path.name.startswith(".")] == []
    assert json.loads((fleet.store / "controller.json").read_bytes())["owner"] == "" if fleet.store else True
    assert list(fleet.machine.glob("secrets.json")) == []
    left = [str(path) for path in fleet.machine.glob("workers/*/scratch")]
    assert left == [], left
    assert {path.name for path in fleet.machine.iterdir()} <= _OF_A_MACHINE
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    assert {line.split()[4] for line in mounts if str(fleet.folder) in line} <= {
        str(fleet.folder / "data"),
        str(fleet.folder / "logs"),
    }


def check_canary(fleet: ChaosFleet) -> None:
    """The secret is in nothing that was written, however it was packed."""
    assert holders(fleet.folder, CANARY) == []


def holders(folder: Path, secret: str) -> list[str]:
    """Files below a folder in which a text stands; members of logs are unpacked."""
    needle, found = secret.encode(), list[str]()
    for path in folder.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        if path.suffix == ".eval":
            with EvalArchive.open(path) as archive:
                members = archive.members
                found += [f"{path}!{name}" for name in members.members if needle in members.read(name)]
        elif path.suffix == ".zst":
            from zstandard import ZstdDecompressor

            if needle in ZstdDecompressor().stream_reader(path.read_bytes()).read():
                found.append(str(path))
        if needle in path.read_bytes():
            found.append(str(path))
    return found


def workers(fleet: ChaosFleet) -> list[dict[str, Any]]:
    """The provider's records of workers."""
    return [json.loads(path.read_bytes()) for path in fleet.machine.glob("workers/[!.]*.json")]


def owner_of(group: Path) -> int:
    parts = group.name.rsplit("-", 3)
    return int(parts[1]) if len(parts) == 4 and parts[1].isdecimal() else 0


def secret_in_processes(fleet: ChaosFleet, secret: str) -> list[str]:
    """Its processes whose command line or variables show a text.

    The variables of the user's own command and of what it forked are those of the user's shell.
    """
    found: list[str] = []
    for one in fleet.processes():
        words = one.command.split()
        of_the_user = any(word.endswith("/ct") for word in words[:2])
        for name in ("cmdline",) if of_the_user else ("cmdline", "environ"):
            try:
                if secret.encode() in Path(f"/proc/{one.pid}/{name}").read_bytes():
                    found.append(f"{name} of {one.command}")
            except OSError:
                continue
    return found


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
