"""Logs that could not be uploaded when their run ended: a note beside each, until they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from control_tower import config
from control_tower.errors import StateError
from control_tower.logs.json_text import JsonObject, texts

SUFFIX = ".unsent"


@dataclass(frozen=True)
class Unsent:
    """A log that waits."""

    log: Path
    viewer: str | None
    """Address of the viewer it was meant for; None is whichever is configured."""
    name: str | None = None
    tags: tuple[str, ...] | None = None
    """What its run was to be called, where its log does not decide."""


def log_dir() -> Path:
    """Where logs go."""
    return Path(config.get("log_dir", "logs"))


def newest_log() -> Path:
    """The log that was written last.

    Raises:
        StateError: There is none.
    """
    logs = sorted(log_dir().glob("*.eval"), key=lambda path: path.stat().st_mtime_ns)
    if not logs:
        raise StateError(f"there is no log in {log_dir()}; name the file")
    return logs[-1]


def keep_unsent(waiting: Unsent, reason: str) -> None:
    """Notes that a log is still to be uploaded."""
    note = {"viewer": waiting.viewer, "name": waiting.name, "tags": waiting.tags, "reason": reason}
    _note(waiting.log).write_text(json.dumps(note) + "\n", encoding="utf-8")


def sent(log: Path) -> None:
    """Forgets the note, if there is one."""
    _note(log).unlink(missing_ok=True)


def unsent_logs(folder: Path) -> list[Unsent]:
    """The logs in a folder that wait, by name."""
    found: list[Unsent] = []
    for note in sorted(folder.glob(f"*.eval{SUFFIX}")):
        log = note.with_name(note.name.removesuffix(SUFFIX))
        if not log.is_file():
            continue
        try:
            told: Any = json.loads(note.read_bytes())
        except ValueError:
            told = None
        kept = cast(JsonObject, told) if isinstance(told, dict) else {}
        viewer, name = (
            text if isinstance(text := kept.get(key), str) else None for key in ("viewer", "name")
        )
        found.append(Unsent(log, viewer, name, tuple(texts(kept, "tags")) or None))
    return found


def _note(log: Path) -> Path:
    return log.with_name(log.name + SUFFIX)
