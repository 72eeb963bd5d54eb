"""Runs a command as an unprivileged user who can reach this repository and its interpreter."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PLAIN_USER = 61001
_REPOSITORY = Path(__file__).parents[2]


def run_as_plain_user(command: Sequence[str], home: Path, timeout: int) -> subprocess.CompletedProcess[str]:
    """Run `command` as a user without any right; must be called as root.

    Folders like /root, through which that user may not pass, are replaced for the command (in a mount
    namespace of its own) by empty ones that hold nothing but what the command needs.
    """
    needed = [_REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)]
    script = [
        "set -e",
        *_opened([str(path.resolve()) for path in needed]),
        f"chown {PLAIN_USER}:{PLAIN_USER} {shlex.quote(str(home))}",
        f"cd {shlex.quote(str(_REPOSITORY))}",
        f"exec setpriv --reuid {PLAIN_USER} --regid {PLAIN_USER} --clear-groups --no-new-privs "
        + shlex.join(command),
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
    )


def _opened(paths: Sequence[str]) -> list[str]:
    """Shell lines that make each path reachable for everyone, in the current mount namespace."""
    lines: list[str] = []
    for blocked in sorted({folder for path in paths if (folder := _first_blocked(path))}):
        inside = [path for path in paths if path.startswith(f"{blocked}/")]
        stash = [f"/mnt/.ct-{number}" for number in range(len(inside))]
        lines.append("mount -t tmpfs none /mnt")
        for path, place in zip(inside, stash, strict=True):
            lines += [f"mkdir {place}", f"mount --rbind {shlex.quote(path)} {place}"]
        lines.append(f"mount -t tmpfs -o mode=0755 none {shlex.quote(blocked)}")
        for path, place in zip(inside, stash, strict=True):
            lines += [f"mkdir -p {shlex.quote(path)}", f"mount --rbind {place} {shlex.quote(path)}"]
    return lines


def _first_blocked(path: str) -> str | None:
    """The topmost folder on the way to a path that others may not pass."""
    for folder in [*reversed(Path(path).parents), Path(path)][1:]:
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return None
