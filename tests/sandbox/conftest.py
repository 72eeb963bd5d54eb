"""A sample of the echo environment in each sandbox that works here, and what must be left of it: nothing."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment

from control_tower.sandbox.docker_probe import docker_problem, missing_images
from control_tower.sandbox.namespaces import bubblewrap_problem
from tests.sandbox.host import Leftovers

ECHO = Path(__file__).parent / "fixtures" / "echo" / "compose.yaml"
PLAIN = Path(__file__).parent / "fixtures" / "plain" / "compose.yaml"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def provider(name: str) -> type[SandboxEnvironment]:
    """The class of a sandbox type; skips the test where it cannot work, with the reason."""
    from control_tower.sandbox import providers

    if name == "bwrap" and (problem := bubblewrap_problem()):
        pytest.skip(problem)
    if name == "lb-docker":
        if problem := docker_problem():
            pytest.skip(problem)
        if missing := missing_images(ECHO):
            pytest.skip(f"Docker has no image {missing[0]}: CT_BASE_IMAGE can name another one with python3")
    return {
        "bwrap": providers.BubblewrapSandbox,
        "process": providers.ProcessSandbox,
        "lb-docker": providers.DockerSandbox,
    }[name]


@asynccontextmanager
async def sample(
    name: str, compose: Path = ECHO, metadata: dict[str, Any] | None = None
) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    """The machines of one sample."""
    sandbox = provider(name)
    await sandbox.task_init("test", str(compose))
    environments = await sandbox.sample_init("test", str(compose), metadata or {})
    try:
        yield environments
    finally:
        await sandbox.sample_cleanup("test", str(compose), environments, False)
        await sandbox.task_cleanup("test", str(compose), True)


@pytest.fixture
def nothing_left() -> Iterator[Leftovers]:
    """Fails when processes, control groups, folders or mounts of a test outlive it."""
    leftovers = Leftovers.now()
    yield leftovers
    leftovers.check()


@pytest.fixture
async def bwrap(anyio_backend: str, nothing_left: Leftovers) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    async with sample("bwrap") as machines:
        yield machines
        nothing_left.remember_family()


@pytest.fixture(params=["bwrap", "process", pytest.param("lb-docker", marks=pytest.mark.docker)])
async def machines(
    request: pytest.FixtureRequest, anyio_backend: str, nothing_left: Leftovers
) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    async with sample(request.param) as started:
        yield started
        nothing_left.remember_family()
