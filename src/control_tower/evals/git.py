"""What version control says of a folder, for the record of a run."""

import re
import subprocess
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_TIMEOUT = 10


class GitState(BaseModel):
    """A checkout; all None where there is none."""

    model_config = ConfigDict(frozen=True)

    commit: str | None = None
    dirty: bool | None = None
    remote_url: str | None = None
    """Without credentials."""


@cache
def git_state(folder: Path) -> GitState:
    """The state of the checkout that tracks `folder`; an installed package is in none."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return GitState()
    changes = _git(folder, "status", "--porcelain")
    remote = _git(folder, "remote", "get-url", "origin")
    return GitState(
        commit=commit,
        dirty=None if changes is None else bool(changes),
        remote_url=re.sub(r"(?<=://)[^/@]*@", "", remote) if remote else None,
    )


def _git(folder: Path, *args: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
