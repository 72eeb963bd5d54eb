"""What a conversion changed, counted by rule, and what the current format could not hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from control_tower.errors import ValidationError


@dataclass
class Notes:
    """Filled by the steps while one log is converted."""

    log: str
    """What messages call the log."""
    origin: str
    """What `converted_from` calls it."""
    changes: Counter[str] = field(default_factory=Counter[str])
    not_kept: Counter[str] = field(default_factory=Counter[str])

    def changed(self, rule: str, times: int = 1) -> None:
        """Counts that a rule was applied."""
        if times:
            self.changes[rule] += times

    def lost(self, what: str) -> None:
        """Counts something that is not in the converted log."""
        self.not_kept[what] += 1

    def refused(self, sample: object, why: str) -> ValidationError:
        """The error that a sample cannot be converted; to be raised."""
        return ValidationError(f"{self.log}: sample {sample}: {why}")
