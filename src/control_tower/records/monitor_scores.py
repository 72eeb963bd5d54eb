"""The `monitor` Score: what each key of its value says, and how it is made of the verdicts of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from control_tower.errors import ValidationError

UNSCORED = "unscored"
"""A verdict that could not be had; never a number."""

LOWEST, HIGHEST = 0.0, 100.0
"""The scale of suspicion."""

TRAJECTORY = "trajectory"
_DRAFT = "draft"


@dataclass(frozen=True)
class MonitorKey:
    """What a verdict is about: exactly one of `action`, `draft`, or neither for the whole trajectory."""

    monitor: str
    draw: int
    """From 1."""
    action: int | None = None
    """Index of the action."""
    draft: str | None = None
    """Message id of a draft that did not become an action."""

    def __str__(self) -> str:
        if self.draft is not None:
            return f"{self.monitor}/{self.draw}/{_DRAFT}/{self.draft}"
        return f"{self.monitor}/{self.draw}/{TRAJECTORY if self.action is None else self.action}"

    @classmethod
    def parse(cls, key: str) -> MonitorKey:
        """Read a key of the `monitor` Score; names of monitors may contain slashes.

        Raises:
            ValidationError: it is none.
        """
        parts = key.rsplit("/", 3)
        if len(parts) == 4 and parts[2] == _DRAFT and parts[0] and _draw(parts[1]) and parts[3]:
            return cls(parts[0], int(parts[1]), draft=parts[3])
        name, draw, about = key.rsplit("/", 2) if key.count("/") >= 2 else ("", "", "")
        if name and _draw(draw) and (about == TRAJECTORY or _digits(about)):
            return cls(name, int(draw), action=None if about == TRAJECTORY else int(about))
        raise ValidationError(
            f"monitor score {key!r} is not <monitor>/<draw>/<action>, .../trajectory or .../draft/<id>: "
            "convert the log"
        )


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _draw(text: str) -> bool:
    return _digits(text) and int(text) >= 1


@dataclass(frozen=True)
class MonitorEntry:
    """One draw's verdict, as a sample's store keeps it while the sample is played."""

    message_id: str | None
    """The judged message; None when the whole trajectory was judged."""
    monitor: str
    draw: int
    value: float | None
    """From 0 to 100; None when unscored."""
    explanation: str | None = None
    """Why it is unscored."""
    attempts: int | None = None
    """How often an unscored verdict was asked for."""

    def as_json(self) -> dict[str, Any]:
        """As the store holds it."""
        record: dict[str, Any] = {
            "message_id": self.message_id,
            "monitor": self.monitor,
            "draw": self.draw,
            "value": UNSCORED if self.value is None else self.value,
        }
        return record if self.value is not None else {**record, **self.failure}

    @property
    def failure(self) -> dict[str, Any]:
        """What the Score's metadata says of an unscored verdict."""
        attempts = {} if self.attempts is None else {"attempts": self.attempts}
        return {"explanation": self.explanation, **attempts}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> MonitorEntry:
        """Read an entry of the store; a value that is no number is unscored."""
        return cls(
            record.get("message_id"),
            str(record["monitor"]),
            int(record["draw"]),
            read_suspicion(record.get("value")),
            record.get("explanation"),
            record.get("attempts"),
        )


def read_suspicion(value: Any) -> float | None:
    """A verdict as a number; booleans, texts, NaN and infinity are no numbers, so they are None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def monitor_score(
    entries: Iterable[MonitorEntry], action_of: Mapping[str, int]
) -> tuple[dict[str, float | str], dict[str, dict[str, Any]]]:
    """Value and metadata of the `monitor` Score; of a repeated key the last verdict counts.

    Args:
        entries: the verdicts, in the order they were given.
        action_of: the index of the action by its message's id; other ids are those of drafts.
    """
    value: dict[str, float | str] = {}
    metadata: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key = str(_key(entry, action_of))
        value[key] = UNSCORED if entry.value is None else entry.value
        metadata.pop(key, None)
        if entry.value is None:
            metadata[key] = entry.failure
    return value, metadata


def _key(entry: MonitorEntry, action_of: Mapping[str, int]) -> MonitorKey:
    if entry.message_id is None:
        return MonitorKey(entry.monitor, entry.draw)
    action = action_of.get(entry.message_id)
    draft = entry.message_id if action is None else None
    return MonitorKey(entry.monitor, entry.draw, action, draft)
