"""Where a fleet of this machine keeps what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from control_tower.config import data_dir


@dataclass(frozen=True)
class LocalPlace:
    """The folders of one fleet; none of them need be there yet."""

    fleet: str
    root: Path
    """Of all fleets: the directory store, so that `<root>/<fleet>/<job>.eval` is a verdict."""

    @property
    def machine(self) -> Path:
        """What is not part of the store: queues, secrets, workers; hidden, so that the store ignores it."""
        return self.root / ".machine" / self.fleet

    @property
    def queues(self) -> Path:
        """The SQLite file of all queues."""
        return self.machine / "queues.sqlite"

    @property
    def secrets(self) -> Path:
        """The file of secrets, mode 0600."""
        return self.machine / "secrets.json"

    @property
    def workers(self) -> Path:
        """One record `<worker>.json` and one folder `<worker>/` for each worker."""
        return self.machine / "workers"


def local_place(fleet: str) -> LocalPlace:
    """Where a fleet of this user is."""
    return LocalPlace(fleet, data_dir() / "fleets")
