"""A fleet of real processes for tests: its command, its processes, what its store holds."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CT = Path(sys.executable).with_name("ct")
HERE = Path(__file__).parent
CANARY = "canary-4b1d0c7e55aa9f36-not-to-be-seen"
"""The value of the variable that the environment of these fleets requires."""

SPEED = 20
"""Seconds of a fleet in one: workers that are not heard of are lost after 9."""

TTL = 180 / SPEED
"""Seconds without a sign after which a worker is lost."""


_OUR_MOUNTS = Path("/proc/self/ns/mnt").readlink()


@dataclass(frozen=True)
class Process:
    """One process of a fleet."""

    pid: int
    parent: int
    command: str

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; whoever is gone gets none."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class ChaosFleet:
    """One control-eval by a fleet, everything of it below one folder.

    Args:
        folder: Its own; `data` and `logs` in it may be file systems.
        jobs: How many, half of them attacks.
        workers: Processes.
        slots: Jobs that each plays at once.
    """

    def __init__(self, folder: Path, jobs: int = 60, workers: int = 4, slots: int = 3) -> None:
        self.folder, self.jobs = folder, jobs
        self.controller: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._started = 0.0
        quick = f"{HERE / 'quick.py'}@quick"
        self.command = [
            *("run", "control-eval", "--honest-policy", quick, "--attack-policy", quick),
            *("-e", "chaos/steps", "-t", "count", "-s", "mark", "--epochs", str(jobs // 2), "--no-upload"),
            *("--sandbox", "bwrap"),
            *("--fleet", "local", "--fleet-arg", f"workers={workers}", "--fleet-arg", f"slots={slots}"),
        ]
        for name in ("home", "tmp", "data", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "CONTROL_TOWER_FLEET_SPEED": str(SPEED),
            "CONTROL_TOWER_SETTINGS_DIR": str(HERE / "settings"),
            **{
                f"CONTROL_TOWER_{name}_DIR": str(folder / name.lower())
                for name in ("DATA", "CONFIG", "CACHE")
            },
            "CHAOS_TOKEN": CANARY,
        }
        self.environment.pop("INSPECT_LOG_DIR", None)
        self.environment.pop("CONTROL_TOWER_PRICING", None)

    def start(self, *command: str) -> None:
        """Starts a controller; the command of the run when no other is given."""
        self.starts += 1
        self._started = time.time()
        with (self.folder / "told.txt").open("ab") as told:
            self.controller = subprocess.Popen(
                [CT, *(command or self.command)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        """What all controllers printed."""
        return (self.folder / "told.txt").read_text()

    def kill_controller(self) -> None:
        """Ends the controller between two instructions."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    @property
    def driven(self) -> bool:
        """Whether a controller that was started last is at work: it holds the lease."""
        if self.controller is None or self.controller.poll() is not None or self.store is None:
            return False
        with suppress(OSError, ValueError):
            lease = json.loads((self.store / "controller.json").read_bytes())
            return f"-{self.controller.pid}-" in lease["owner"]
        return False

    @property
    def telling(self) -> bool:
        """Whether the controller that was started last has written events."""
        with suppress(OSError):
            return self.driven and self.events_file.stat().st_mtime > self._started
        return False

    @property
    def store(self) -> Path | None:
        """The folder of the fleet's objects, once there is a fleet."""
        found = list(self.folder.glob("data/fleets/*/fleet.json"))
        return found[0].parent if found else None

    @property
    def fleet(self) -> str:
        """Its id."""
        assert self.store is not None
        return self.store.name

    @property
    def machine(self) -> Path:
        """The folder of its queues and workers."""
        return self.folder / "data" / "fleets" / ".machine" / self.fleet

    @property
    def events_file(self) -> Path:
        """Its events."""
        return self.folder / "logs" / "fleet" / self.fleet / "events.jsonl"

    @property
    def events(self) -> list[dict[str, Any]]:
        """Whole lines only, as someone who reads along sees them."""
        with suppress(OSError):
            return [json.loads(line) for line in self.events_file.read_text().split("\n")[:-1]]
        return []

    @property
    def sealed(self) -> bool:
        """Whether its outcome is frozen."""
        return self.store is not None and (self.store / "seal" / "1.json").is_file()

    @property
    def verdicts(self) -> set[str]:
        """Jobs that are decided."""
        return {path.stem for path in self.store.glob("[!.]*.eval")} if self.store else set()

    @property
    def claims(self) -> set[tuple[str, int]]:
        """Attempts that a worker took."""
        found = self.store.glob("claims/[!.]*") if self.store else ()
        return {(path.stem, int(path.suffix[1:])) for path in found}

    def endings(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The accounts of attempts that are not the verdict."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for path in self.store.glob("attempts/[!.]*.json") if self.store else ():
            ending = json.loads(path.read_bytes())
            found[ending["job"], ending["n"]] = ending
        return found

    def offers(self) -> int:
        """Messages in all queues."""
        with suppress(sqlite3.Error, AssertionError):
            file = self.machine / "queues.sqlite"
            if file.exists():
                connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=1)
                try:
                    return connection.execute("SELECT count(*) FROM messages").fetchone()[0]
                finally:
                    connection.close()
        return 0

    def processes(self) -> list[Process]:
        """All processes that belong to it: by their variables, command line, folders or mounts."""
        return list(marked(self.folder))

    def of_kind(self) -> dict[str, list[Process]]:
        """Its processes by what they do."""
        kinds: dict[str, list[Process]] = {"supervisor": [], "zygote": [], "job": [], "other": []}
        found = self.processes()
        zygotes: set[int] = set()
        supervisors = {one.pid for one in found if "control_tower.fleet.supervisor" in one.command}
        for one in found:
            if one.pid in supervisors:
                kinds["supervisor"].append(one)
            elif "control_tower.fleet.zygote" in one.command and one.parent in supervisors:
                kinds["zygote"].append(one)
                zygotes.add(one.pid)
        for one in found:
            if one.parent in zygotes:
                kinds["job"].append(one)
            elif one.pid not in supervisors | zygotes:
                kinds["other"].append(one)
        return kinds

    def end_all(self) -> None:
        """Ends whatever is left of it."""
        if self.controller and self.controller.poll() is None:
            self.kill_controller()
        for _ in range(5):
            for one in self.processes():
                one.signal(signal.SIGKILL)
            time.sleep(0.05)


def marked(folder: Path) -> Iterator[Process]:
    """Processes that have to do with a folder, and their descendants."""
    disks = {(folder / name).stat().st_dev for name in ("data", "logs") if (folder / name).is_mount()}
    devices = {f"{os.major(disk)}:{os.minor(disk)}" for disk in disks}
    found: dict[int, Process] = {}
    mine: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            told = (entry / "cmdline").read_bytes()
            command = told.replace(b"\0", b" ").decode(errors="replace")
            one = found[int(entry.name)] = Process(int(entry.name), int(fields[1]), command)
            told += (entry / "environ").read_bytes()
            is_ours = os.fsencode(folder) in told
            if (entry / "ns/mnt").readlink() != _OUR_MOUNTS:
                is_ours = is_ours or _sees((entry / "mountinfo").read_text(), folder, devices)
            if one.pid != os.getpid() and is_ours:
                mine.add(one.pid)
    for one in found.values():
        at = one
        while at.pid not in mine and at.parent in found:
            at = found[at.parent]
        if at.pid in mine:
            yield one


def _sees(mounts: str, folder: Path, devices: set[str]) -> bool:
    """Whether a sandbox has a part of the folder; it has neither our variables nor our command line.

    Who has a copy of all mounts of this machine, as `ip netns exec` has, sees the folder where we see it.
    """
    for line in mounts.splitlines():
        device, root, place = line.split()[2:5]
        if (device in devices or str(folder) in root) and not Path(place).is_relative_to(folder):
            return True
    return False


@contextmanager
def small_disks(folder: Path, **sizes: str) -> Iterator[None]:
    """File systems of their own, of a size like `64m`, below a folder."""
    mounted: list[Path] = []
    try:
        for name, size in sizes.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "chaos", folder / name], check=True)
            mounted.append(folder / name)
        yield
    finally:
        for path in mounted:
            subprocess.run(["umount", "--lazy", path], check=False)
