"""Which sandbox a run uses, and the one line that says why."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from control_tower.errors import StateError, UsageError, did_you_mean
from control_tower.sandbox.compose import runs_without_docker
from control_tower.sandbox.docker_probe import docker_problem, missing_images
from control_tower.sandbox.namespaces import bubblewrap_problem

if TYPE_CHECKING:
    from inspect_ai.util import SandboxEnvironmentSpec

DOCKER = "lb-docker"
CHOICES = ("auto", "bwrap", "docker", "process", "replay")
"""What `--sandbox` takes, beside the types that other packages register with Inspect."""


@dataclass(frozen=True)
class SandboxChoice:
    """A sandbox type as Inspect knows it, and why it was chosen: one line for the user."""

    type: str
    reason: str


def choose_sandbox(
    requested: str, spec: SandboxEnvironmentSpec, *, scripted_or_demo_models: bool
) -> SandboxChoice:
    """The sandbox for an environment.

    Args:
        requested: one of `CHOICES`, or any type registered with Inspect.
        spec: what the environment declares; for our types its configuration is a compose file's path.
        scripted_or_demo_models: whether nothing but scripted policies and demo models will act, which is
            what may run without isolation.

    Raises:
        StateError: a prerequisite is missing, or the environment or the models may not run there.
        UsageError: no such sandbox type.
    """
    if requested == "auto":
        if spec.type == "local":
            return _other(spec.type)
        if spec.type not in (DOCKER, "docker", "bwrap", "process"):
            return SandboxChoice(spec.type, f"{spec.type}, as the environment declares")
        return _automatic(spec, scripted_or_demo_models)
    if requested == "replay":
        return SandboxChoice(requested, "replay: nothing runs, recorded outputs are served")
    if requested in ("docker", DOCKER):
        return SandboxChoice(DOCKER, f"Docker, as asked{_or_raise(docker_problem())}")
    if requested == "bwrap":
        _require_without_docker(spec, requested)
        return SandboxChoice("bwrap", f"bubblewrap, as asked{_or_raise(bubblewrap_problem())}")
    if requested == "process":
        _require_without_docker(spec, requested)
        if not scripted_or_demo_models:
            raise StateError(
                "plain processes isolate nothing, so only scripted policies and demo models may run in them:"
                " use `--sandbox docker` or `--sandbox bwrap`"
            )
        return SandboxChoice("process", "plain processes without isolation, as asked")
    return _other(requested)


def sandbox_problems(type: str) -> list[str]:
    """What keeps a sandbox type from working here, each with what to do; empty when nothing does."""
    problem: str | None = None
    if type == "bwrap":
        problem = bubblewrap_problem()
    elif type in (DOCKER, "docker"):
        problem = docker_problem()
    return [problem] if problem else []


def _automatic(spec: SandboxEnvironmentSpec, scripted_or_demo_models: bool) -> SandboxChoice:
    """Docker where it can start at once, else bubblewrap, else processes for what is harmless."""
    no_docker = docker_problem()
    if not _without_docker(spec):
        if no_docker:
            raise StateError(f"this environment needs Docker, but {_why(no_docker)}")
        return SandboxChoice(DOCKER, "Docker, which the environment needs")
    file = Path(str(spec.config))
    missing = [] if no_docker else missing_images(file)
    if not no_docker and not missing:
        return SandboxChoice(DOCKER, "Docker: the daemon answers and its images are here")
    why_not = _why(no_docker) if no_docker else f"Docker has no image {missing[0]}"
    no_bubblewrap = bubblewrap_problem()
    if no_bubblewrap is None:
        return SandboxChoice("bwrap", f"bubblewrap: {why_not}")
    if scripted_or_demo_models:
        return SandboxChoice(
            "process", f"plain processes without isolation: {why_not}; {_why(no_bubblewrap)}"
        )
    raise StateError(
        f"no sandbox isolates here, and only scripted policies and demo models may run without: {why_not};"
        f" {no_bubblewrap}"
    )


def _other(requested: str) -> SandboxChoice:
    from control_tower.inspect_private import sandbox_types

    known = sandbox_types()
    if requested not in known:
        names = sorted({*CHOICES, *known} - {"local"})
        raise UsageError(f"no sandbox is called {requested!r}{did_you_mean(requested, names)}")
    if requested == "local":
        raise UsageError(
            "sandbox 'local' runs agents on this machine without isolation: use `--sandbox process`"
        )
    return SandboxChoice(requested, f"{requested}, as asked")


def _require_without_docker(spec: SandboxEnvironmentSpec, requested: str) -> None:
    if not _without_docker(spec):
        raise StateError(
            f"{spec.config}: this environment runs in Docker only, not in {requested}: use `--sandbox docker`"
        )


def _without_docker(spec: SandboxEnvironmentSpec) -> bool:
    return (
        sys.platform != "win32"
        and isinstance(spec.config, str)
        and Path(spec.config).suffix in (".yaml", ".yml")
        and runs_without_docker(Path(spec.config))
    )


def _or_raise(problem: str | None) -> str:
    if problem:
        raise StateError(problem)
    return ""


def _why(problem: str) -> str:
    """The cause out of a problem's line, without what to do."""
    return problem.partition(": ")[0].partition(", or use")[0]
