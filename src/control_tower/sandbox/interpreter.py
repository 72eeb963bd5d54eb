"""The Python interpreter that every machine has, and the host folders it needs."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Interpreter:
    """`executable` as it is called inside; `folder` is what must be visible for it, None within /usr.

    `packages` are folders of what is installed on the host beside the standard library.
    """

    executable: str
    folder: str | None
    packages: tuple[str, ...] = ()

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
        return Interpreter(executable, None, _packages())
    if Path(executable).is_relative_to(prefix):
        return Interpreter(executable, prefix, _packages())
    return Interpreter(executable, None)


def _packages() -> tuple[str, ...]:
    """Where the interpreter would find packages, Debian's own place for them included."""
    library = Path(os.path.realpath(sysconfig.get_path("stdlib")))
    places = (
        library / "site-packages",
        library / "dist-packages",
        library.parent / "python3" / "dist-packages",
    )
    return tuple(str(place) for place in places if place.is_dir() and not place.is_symlink())
