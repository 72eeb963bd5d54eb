"""What the docker client tells and does: whether Docker can be used here, its images and projects."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from control_tower.sandbox.compose import interpolate, load_yaml
from control_tower.sandbox.transforms import images_needed

_SECONDS = 30
_TRIES = 3
"""Of a client that somebody else ended: that says nothing about Docker."""


@cache
def docker_problem() -> str | None:
    """Why Docker cannot be used and what to do, or None; asked once a process."""
    if shutil.which("docker") is None:
        return "Docker is not installed: install it, or use `--sandbox bwrap`"
    if not _answers("version", "--format", "{{.Server.Version}}"):
        return "no Docker daemon answers: start it (and check that you may use it), or use `--sandbox bwrap`"
    if not _answers("compose", "version"):
        return "Docker has no compose plugin: install docker-compose-plugin, or use `--sandbox bwrap`"
    return None


def missing_images(compose_file: Path) -> list[str]:
    """Images that are not present and that a compose file's services need to start or to be built."""
    content = interpolate(load_yaml(compose_file), os.environ, compose_file)
    images = images_needed(content, compose_file.parent)
    return [image for image in images if not _answers("image", "inspect", "--format", "{{.Id}}", image)]


def compose_projects() -> list[tuple[str, list[Path]]]:
    """Compose projects that have containers, running or not, with the files they were made from."""
    done = _docker("compose", "ls", "--all", "--format", "json")
    projects: list[dict[str, str]] = json.loads(done.stdout) if done and done.returncode == 0 else []
    return [(p["Name"], [Path(file) for file in p["ConfigFiles"].split(",")]) for p in projects]


def bring_down(project: str) -> None:
    """Remove a compose project's containers, networks and volumes."""
    _docker("compose", "--project-name", project, "down", "--volumes", "--timeout", "1")


def _answers(*arguments: str) -> bool:
    """Whether a docker command succeeds in time."""
    done = _docker(*arguments)
    return done is not None and done.returncode == 0


def _docker(*arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    command: Sequence[str] = ["docker", *arguments]
    done = None
    for _ in range(_TRIES):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode not in (-signal.SIGKILL, -signal.SIGTERM):
            return done
    return done
