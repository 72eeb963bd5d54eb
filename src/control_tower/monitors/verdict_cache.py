"""Verdicts that were paid for, kept on disk, so that judging a log again asks only for what is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

import control_tower
from control_tower.errors import OperationError
from control_tower.monitors.config import Monitor
from control_tower.records.monitor_scores import HIGHEST, LOWEST, read_suspicion


class VerdictCache:
    """Numbers by the hash of all that a verdict depends on; each is written down at once.

    Args:
        path: a file that lines are added to; a line that was cut off, or holds no number from 0 to 100, is
            passed over.
        roles: the full configuration of each role's model.
    """

    def __init__(self, path: Path, roles: Mapping[str, Any]) -> None:
        self._path = path
        self._roles = roles
        self._known = dict(_lines(path))

    def key(self, monitor: Monitor, draw: int, about: Any) -> str | None:
        """The hash of a verdict; None when it is not kept: the monitor's text has no hash, or it is free.

        Args:
            monitor: who judges.
            draw: which of its draws.
            about: the sample, what is judged and what is known besides, as JSON.
        """
        source = monitor.source
        if source["sha256"] is None or monitor.asks_no_model:
            return None
        record = monitor.model_dump(mode="json", exclude={"name", "samples"})
        parts = [control_tower.__version__, record, source, self._roles, draw, about]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def get(self, key: str | None) -> float | None:
        """The number that was kept; None when there is none."""
        return None if key is None else self._known.get(key)

    def keep(self, key: str | None, number: float) -> None:
        """Keep a number.

        Raises:
            OperationError: the file cannot be written.
        """
        if key is None:
            return
        self._known[key] = number
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b") as file:
                line = json.dumps({"key": key, "value": number}) + "\n"
                file.write((line if _ends_in_a_line(file) else f"\n{line}").encode())
        except OSError as error:
            raise OperationError(f"cannot keep verdicts in {self._path}: {error.strerror}") from error


def _ends_in_a_line(file: BinaryIO) -> bool:
    """Whether the last line is whole: one that was cut off would swallow what is written behind it."""
    if file.seek(0, SEEK_END) == 0:
        return True
    file.seek(-1, SEEK_END)
    return file.read(1) == b"\n"


def _lines(path: Path) -> list[tuple[str, float]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    kept: list[tuple[str, float]] = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
            key, number = str(record["key"]), read_suspicion(record["value"])
        except (ValueError, KeyError, TypeError):
            continue
        if number is not None and LOWEST <= number <= HIGHEST:
            kept.append((key, number))
    return kept
