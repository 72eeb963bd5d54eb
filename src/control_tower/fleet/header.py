"""The header of a fleet's whole run, made beside its controller: workers need not wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

from control_tower.config import redact
from control_tower.errors import OperationError
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.keys import Keys
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.plan import FleetFile, header_log

if TYPE_CHECKING:
    from control_tower.evals.plan import RunPlan

_NICE = 10


class WholeHeader:
    """`<fleet>/plan/header.eval`; a process of its own writes it, and ends by itself."""

    def __init__(self, place: LocalPlace, file: FleetFile, plan: RunPlan | None = None) -> None:
        """Begins to make it where it is not there yet; no other thread may run.

        Args:
            place: Of the fleet.
            file: The fleet.
            plan: Its run, where that is known; it is planned again otherwise.
        """
        key = Keys(file.fleet).header
        self._store = DirectoryStore(place.root)
        self._path = place.root / key
        self._told = place.machine / "header.log"
        self._child: int | None = None
        if not self._path.exists():
            place.machine.mkdir(parents=True, exist_ok=True)
            self._child = os.fork()
            if self._child == 0:
                self._make(key, file, plan)

    def body(self) -> bytes:
        """It, as soon as it is there.

        Raises:
            OperationError: It could not be made.
        """
        if self._child is not None:
            os.waitpid(self._child, 0)
            self._child = None
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            raise OperationError(f"the header of the merged log was not made; why: {self._told}") from None

    def _make(self, key: str, file: FleetFile, plan: RunPlan | None) -> NoReturn:
        try:
            # Those who wait for workers are to have them first, and Ctrl-C is the controller's affair.
            os.nice(_NICE)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            told = os.open(self._told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(told, 1)
            os.dup2(told, 2)
            os.chdir(file.folder)
            plan = plan or _planned(file)
            with TemporaryDirectory(prefix="ct-fleet-") as scratch:
                asyncio.run(self._store.create(key, header_log(plan, Path(scratch))))
        except BaseException:  # noqa: BLE001 - whoever waits for it reads why
            os.write(2, redact(traceback.format_exc()).encode())
        finally:
            # Whatever the parent does at its end is not this process's.
            os._exit(0)


def _planned(file: FleetFile) -> RunPlan:
    from control_tower.evals.plan import RunPlan
    from control_tower.evals.run_config import RunConfig

    return RunPlan(RunConfig.model_validate(file.config), file.command)
