"""The output of a worker: lines with their time, and whatever else the process prints, without secrets."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

from typing_extensions import override

from control_tower.redactor import Redactor


class MaskedOutput:
    """From now on both outputs of this process, so that tracebacks and warnings are masked, too."""

    def __init__(self) -> None:
        self._lines = _Lines(sys.stdout.fileno())
        sys.stdout = sys.stderr = self._lines

    def mask(self, redactor: Redactor) -> None:
        """Leaves out these secrets from now on."""
        self._lines.redactor = redactor

    def say(self, text: str) -> None:
        """Writes a line."""
        self._lines.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")


class _Lines(io.TextIOBase):
    def __init__(self, file: int) -> None:
        self.redactor = Redactor()
        self._file = file
        self._begun = ""

    @override
    def write(self, text: str, /) -> int:
        whole, end, self._begun = (self._begun + text).rpartition("\n")
        if end:
            # On a full disk the work goes on without its lines.
            with suppress(OSError):
                os.write(self._file, self.redactor.text(whole + end).encode("utf-8", "backslashreplace"))
        return len(text)
