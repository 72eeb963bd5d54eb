"""What can happen to a fleet, each by a name; chosen by a seed."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.fleet.chaos.fleet import TTL, ChaosFleet, Process

AT_MOST = {"remove-queues": 1, "remove-secrets": 1, "kill-supervisor": 3, "lose-supervisor": 2}
"""How often what ends whole workers happens: a job that ended four of them is given up as their killer."""

LONG = 1.5 * TTL
"""Seconds for which a worker that is stopped is surely taken for lost."""


class Faults:
    """Does things to a fleet, and ends what it began.

    Args:
        fleet: To whom.
        seed: Decides which processes and how long.
    """

    def __init__(self, fleet: ChaosFleet, seed: int) -> None:
        self.fleet = fleet
        self.chance = random.Random(seed)
        self.done: list[str] = []
        """What was done, with when."""
        self._began = time.monotonic()
        self._later: list[threading.Thread] = []
        self._stop = threading.Event()
        self.known: dict[str, Callable[[], str | None]] = {
            "kill-supervisor": lambda: self._kill("supervisor"),
            "stop-supervisor": lambda: self._pause("supervisor", 1.0),
            "lose-supervisor": lambda: self._pause("supervisor", LONG),
            "kill-zygote": lambda: self._kill("zygote"),
            "stop-zygote": lambda: self._pause("zygote", 2.0),
            "kill-job": lambda: self._kill("job"),
            "stop-job": lambda: self._pause("job", 3.0),
            "kill-sandbox": lambda: self._kill("other"),
            "stop-controller": self._stop_controller,
            "kill-controller": self._kill_controller,
            "fill-data": lambda: self._fill("data"),
            "fill-logs": lambda: self._fill("logs"),
            "remove-sockets": self._remove_sockets,
            "remove-scratch": self._remove_scratch,
            "remove-queues": self._remove_queues,
            "remove-secrets": self._remove_secrets,
        }

    def do(self, name: str) -> bool:
        """Does one thing; False when there was nothing to do it to, or it was done often enough."""
        if sum(line.split()[1] == name for line in self.done) >= AT_MOST.get(name, 99):
            return False
        said = self.known[name]()
        if said is not None:
            self.done.append(f"{time.monotonic() - self._began:6.2f} {name} {said}")
        return said is not None

    def end(self) -> None:
        """Undoes at once what would be undone later."""
        self._stop.set()
        for thread in self._later:
            thread.join()

    def _after(self, seconds: float, undo: Callable[[], None]) -> None:
        def wait() -> None:
            self._stop.wait(seconds)
            undo()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._later.append(thread)

    def _choose(self, kind: str) -> Process | None:
        found = sorted(self.fleet.of_kind()[kind], key=lambda one: one.pid)
        if kind == "other":
            found = [one for one in found if "bwrap" in one.command or "sleep" in one.command]
        return self.chance.choice(found) if found else None

    def _kill(self, kind: str) -> str | None:
        if (one := self._choose(kind)) is None:
            return None
        one.signal(signal.SIGKILL)
        return str(one.pid)

    def _pause(self, kind: str, seconds: float) -> str | None:
        if (one := self._choose(kind)) is None:
            return None
        one.signal(signal.SIGSTOP)
        self._after(seconds, lambda: one.signal(signal.SIGCONT))
        return f"{one.pid} for {seconds:.0f} s"

    def _stop_controller(self) -> str | None:
        controller = self.fleet.controller
        if controller is None or controller.poll() is not None:
            return None
        seconds = self.chance.uniform(1.0, LONG)
        with suppress(ProcessLookupError):
            os.kill(controller.pid, signal.SIGSTOP)

        def go_on() -> None:
            if controller.poll() is None:
                controller.send_signal(signal.SIGCONT)

        self._after(seconds, go_on)
        return f"for {seconds:.0f} s"

    def _kill_controller(self) -> str | None:
        if self.fleet.controller is None or self.fleet.controller.poll() is not None:
            return None
        self.fleet.kill_controller()
        return ""

    def _fill(self, name: str) -> str | None:
        folder = self.fleet.folder / name
        ballast = folder / "ballast"
        if not folder.is_mount() or ballast.exists():
            return None
        fill(ballast)
        self._after(3.0, lambda: ballast.unlink(missing_ok=True))
        return f"{ballast.stat().st_size >> 20} MiB for 3 s"

    def _remove_sockets(self) -> str | None:
        walked = os.walk(self.fleet.folder)
        removed = [
            path
            for parent, _, names in walked
            for path in map(Path(parent).joinpath, names)
            if _is_socket(path)
        ]
        for path in removed:
            path.unlink(missing_ok=True)
        return f"{len(removed)}" if removed else None

    def _remove_scratch(self) -> str | None:
        found = sorted(self.fleet.machine.glob("workers/*/scratch")) if self.fleet.store else []
        if not found:
            return None
        chosen = self.chance.choice(found)
        shutil.rmtree(chosen, ignore_errors=True)
        return chosen.parent.name

    def _remove_queues(self) -> str | None:
        if self.fleet.store is None or not (self.fleet.machine / "queues.sqlite").exists():
            return None
        for path in self.fleet.machine.glob("queues.sqlite*"):
            path.unlink(missing_ok=True)
        return ""

    def _remove_secrets(self) -> str | None:
        if self.fleet.store is None or not (self.fleet.machine / "secrets.json").exists():
            return None
        (self.fleet.machine / "secrets.json").unlink(missing_ok=True)
        # Who goes on with the fleet brings them again.
        return self._kill_controller()


def fill(ballast: Path) -> None:
    """Takes all room of a file system, to its last byte."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        size = 1 << 20
        while size:
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                size //= 16


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return path.is_socket()
    return False
