"""The Python interpreter that every machine has, and the host folders it needs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Interpreter:
    """`executable` as it is called inside; `folder` is what must be visible for it, None within /usr."""

    executable: str
    folder: str | None

    @property
    def names(self) -> list[str]:
        """Names under which a machine's PATH has it."""
        return sorted({"python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"})


@cache
def host_interpreter() -> Interpreter:
    """The interpreter that runs this program, outside of its virtual environment."""
    base = str(getattr(sys, "_base_executable", None) or sys.executable)
    executable = os.path.realpath(base)
    prefix = os.path.realpath(sys.base_prefix)
    if prefix == "/usr" or (prefix.startswith("/usr/") and not prefix.startswith("/usr/local")):
        return Interpreter(executable, None)
    if Path(executable).is_relative_to(prefix):
        return Interpreter(executable, prefix)
    return Interpreter(executable, None)
