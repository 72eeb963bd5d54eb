"""Plays a fleet to its end while things happen to it."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.fleet.chaos.checks import secret_in_processes
from tests.fleet.chaos.faults import Faults
from tests.fleet.chaos.fleet import CANARY, ChaosFleet

LONGEST = 480.0
"""Seconds after which a fleet is called stuck."""

_LOOK = 0.005
_WATCH = 0.5


@dataclass
class Storm:
    """A fleet, what happens to it, and what was seen meanwhile.

    Args:
        fleet: Not yet started.
        seed: Of all chance.
        kinds: Names of faults; one of them every `pause` seconds.
        checkpoints: Names of moments at which something happens, in their order.
        pause: Seconds between two faults, by chance up to twice.
        most: Faults at most.
    """

    fleet: ChaosFleet
    seed: int
    kinds: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    pause: float = 1.0
    most: int = 20
    each: bool = False
    """Each of the kinds once, in this order, before any by chance."""
    then: Sequence[str] = ("kill-controller",)
    """What happens at each checkpoint."""
    reached: list[str] = field(default_factory=list[str])
    shown: list[str] = field(default_factory=list[str])
    """Processes that showed the secret."""

    def __post_init__(self) -> None:
        self.faults = Faults(self.fleet, self.seed)
        self._moments = moments(self.fleet)

    def run(self) -> int:
        """Plays it; returns the exit code of its last controller."""
        fleet, chance = self.fleet, self.faults.chance
        waiting, left, queue = list(self.checkpoints), self.most, list(self.kinds) if self.each else []
        end = time.monotonic() + LONGEST
        next_fault = next_watch = float("inf")
        fleet.start()
        try:
            while True:
                now = time.monotonic()
                if now > end:
                    raise AssertionError(f"stuck after {LONGEST:.0f} s")
                controller = fleet.controller
                assert controller is not None
                if (code := controller.poll()) is not None:
                    if code == 0:
                        return self._finish(waiting, code)
                    if code != -signal.SIGKILL and not self._had_no_room():
                        raise AssertionError(f"the controller ended with {code}")
                    self._again()
                if waiting and self._moments[waiting[0]]():
                    done = [kind for kind in self.then if self.faults.do(kind)]
                    self._passed(waiting.pop(0), done)
                if next_fault == float("inf") and fleet.verdicts:
                    next_fault, next_watch = now + self.pause, now
                if left and self.kinds and now > next_fault and len(fleet.verdicts) < fleet.jobs:
                    next_fault = now + chance.uniform(0, 2 * self.pause)
                    kind = queue[0] if queue else chance.choice(self.kinds)
                    if self.faults.do(kind):
                        left -= 1
                        del queue[:1]
                if now > next_watch and len(fleet.verdicts) < fleet.jobs:
                    next_watch = now + _WATCH
                    self.shown += secret_in_processes(fleet, CANARY)
                time.sleep(0 if fleet.sealed else _LOOK)
        finally:
            self.faults.end()

    def report(self) -> str:
        """What was done, what was reached, and what everybody said."""
        fleet = self.fleet
        lines = [
            f"seed {self.seed}, {len(fleet.verdicts)} verdicts, reached {self.reached}",
            *self.faults.done,
        ]
        logs = sorted(fleet.machine.glob("workers/*/worker.log")) if fleet.store else []
        lines += [f"-- {path.parent.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs]
        lines += ["-- controllers", fleet.told[-6000:]]
        lines += ["-- events", *(json.dumps(event) for event in fleet.events[-15:])]
        return "\n".join(lines)

    def _had_no_room(self) -> bool:
        """Whether the controller said in one line that the disk is full, which the user sees to."""
        *_, last = self.fleet.told.strip().splitlines()
        full = last.startswith("Error: ") and "jobs failed" not in last
        return full and any("fill-" in line for line in self.faults.done)

    def _again(self) -> None:
        """Goes on with it, by either of the two commands."""
        if self.fleet.store is not None and self.fleet.starts % 2:
            self.fleet.start("fleet", "resume", self.fleet.fleet)
        else:
            self.fleet.start()

    def _passed(self, moment: str, done: Sequence[str]) -> None:
        self.reached.append(moment)
        self.faults.done.append(f"   -> checkpoint {moment}: {', '.join(done) or 'nothing left to do it to'}")
        _unblock(self.fleet)

    def _finish(self, waiting: Sequence[str], code: int) -> int:
        assert not waiting, f"never came to {waiting}"
        return code


CHECKPOINTS = (
    "planned",
    "offered",
    "claimed",
    "first result",
    "half",
    "all results, not sealed",
    "sealed, not merged",
    "in the merge",
)
"""The moments of a fleet, in their order."""


def moments(fleet: ChaosFleet) -> dict[str, Callable[[], bool]]:
    """How each checkpoint is recognised."""
    return {
        "planned": lambda: fleet.store is not None,
        "offered": lambda: fleet.driven and fleet.offers() > 0,
        "claimed": lambda: bool(fleet.claims),
        "first result": lambda: fleet.driven and bool(fleet.verdicts),
        "half": lambda: fleet.driven and len(fleet.verdicts) >= fleet.jobs / 2,
        "all results, not sealed": lambda: _held_before_seal(fleet),
        "sealed, not merged": lambda: fleet.sealed,
        "in the merge": lambda: fleet.sealed and _merging(fleet),
    }


def _held_before_seal(fleet: ChaosFleet) -> bool:
    """A file where the folder of seals would be keeps the controller from sealing."""
    if fleet.store is None or fleet.sealed:
        return False
    if fleet.telling and len(fleet.verdicts) >= fleet.jobs * 2 // 3:
        with suppress(FileExistsError):
            (fleet.store / "seal").touch(exist_ok=False)
    return fleet.driven and len(fleet.verdicts) == fleet.jobs


def _unblock(fleet: ChaosFleet) -> None:
    if fleet.store is not None and (fleet.store / "seal").is_file():
        (fleet.store / "seal").unlink()


def _merging(fleet: ChaosFleet) -> bool:
    """Whether a file in the making stands among the logs."""
    with os.scandir(fleet.folder / "logs") as found:
        return any(entry.is_file() and entry.name != "ballast" for entry in found)
