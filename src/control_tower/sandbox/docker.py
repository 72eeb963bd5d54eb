"""The `lb-docker` sandbox: Inspect's Docker provider on a compose file changed for our samples.

Every network is internal, runtime variables reach the agent's machine, built images are shared by samples,
and no call is without a time limit. The changed file stands in the cache folder, never beside its source.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, BinaryIO, Literal, Protocol, TypeVar, cast, overload

import anyio
import yaml
from anyio.abc import Process
from inspect_ai.util import (
    ExecResult,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    sandboxenv,
)
from typing_extensions import override

from control_tower import config as configuration
from control_tower.environments.runtime_vars import RuntimeVarsSandbox, fresh
from control_tower.errors import StateError, ValidationError
from control_tower.inspect_private import docker_provider
from control_tower.sandbox.compose import load_yaml
from control_tower.sandbox.docker_probe import bring_down, compose_projects, docker_problem
from control_tower.sandbox.machine import fallback_timeout
from control_tower.sandbox.owners import owned_name, owner_is_dead
from control_tower.sandbox.transforms import for_docker

_NO_ADDRESSES = (
    "Docker has no network addresses left: run fewer samples at once (`--max-samples`), remove unused"
    " networks (`docker network prune`), or give the daemon more `default-address-pools`"
)

ST = TypeVar("ST", bound=SandboxEnvironment)


@sandboxenv(name="lb-docker")  # pyright: ignore[reportUntypedClassDecorator]
class DockerSandbox(RuntimeVarsSandbox):
    """A container of a sample; `as_type` also gives Inspect's own sandbox object."""

    def __init__(
        self, inner: SandboxEnvironment, runtime_vars: Mapping[str, str], compose_file: Path
    ) -> None:
        super().__init__()
        self.runtime_vars = dict(runtime_vars)
        self._inner = inner
        self._compose_file = compose_file

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return docker_provider().config_files()

    @override
    @classmethod
    def default_concurrency(cls) -> int | None:
        return docker_provider().default_concurrency()

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Check the daemon; build and pull what the samples need."""
        if problem := docker_problem():
            raise StateError(problem)
        await anyio.to_thread.run_sync(sweep)
        await docker_provider().task_init(task_name, str(_shared_file(config)))

    @override
    @classmethod
    async def task_init_environment(
        cls, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, str]:
        return await docker_provider().task_init_environment(str(_shared_file(config)), metadata)

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        runtime_vars = fresh(metadata)
        own_file = _sample_file(config, runtime_vars)
        try:
            started = await docker_provider().sample_init(task_name, str(own_file), metadata)
        except BaseException as failure:
            own_file.unlink(missing_ok=True)
            if "address pool" in str(failure):
                raise StateError(_NO_ADDRESSES) from failure
            raise
        return {
            name: cls(inner, runtime_vars if name == "default" else {}, own_file)
            for name, inner in started.items()
        }

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        ours = {name: environment.as_type(cls) for name, environment in environments.items()}
        inner = {name: sandbox._inner for name, sandbox in ours.items()}
        await docker_provider().sample_cleanup(task_name, config, inner, interrupted)
        if not interrupted:
            for sandbox in ours.values():
                sandbox._compose_file.unlink(missing_ok=True)

    @override
    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        await docker_provider().task_cleanup(task_name, config, cleanup)

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        await docker_provider().cli_cleanup(id)

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; one without a timeout gets that of `fallback_timeout`, and no second try."""
        return await self._inner.exec(
            cmd,
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout if timeout is not None else fallback_timeout(),
            timeout_retry=timeout_retry and timeout is not None,
            concurrency=concurrency,
        )

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self._inner.write_file(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        return await (self._inner.read_file(file, True) if text else self._inner.read_file(file, False))

    @override
    async def archive(self, path: str, destination: Path, *, max_bytes: int, timeout: int) -> bool:
        """As declared; the daemon reads the files, so that nothing in the container takes part."""
        container = (await self.connection()).container
        if container is None:
            return False
        # For `docker cp` a relative path would be one below the container's root.
        folder = cast(_ContainerPaths, self._inner).container_file(path)
        source = f"{container}:{folder.rstrip('/')}/."
        with anyio.fail_after(timeout), destination.open("wb") as file:
            async with await anyio.open_process(["docker", "cp", "--", source, "-"], stdin=DEVNULL) as copy:
                try:
                    await _copy_bounded(copy, file, max_bytes)
                    failed = await copy.wait() != 0
                finally:
                    with suppress(ProcessLookupError):
                        copy.kill()
        if failed:
            raise FileNotFoundError(errno.ENOENT, "No such folder in the container.", path)
        return True

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return await self._inner.connection(user=user)

    @override
    def default_polling_interval(self) -> float:
        return self._inner.default_polling_interval()

    @override
    def as_type(self, sandbox_cls: type[ST]) -> ST:
        if not isinstance(self, sandbox_cls) and isinstance(self._inner, sandbox_cls):
            return self._inner
        return super().as_type(sandbox_cls)


class _ContainerPaths(Protocol):
    def container_file(self, file: str) -> str: ...


async def _copy_bounded(copy: Process, file: BinaryIO, max_bytes: int) -> None:
    assert copy.stdout is not None
    left = max_bytes
    async for chunk in copy.stdout:
        left -= len(chunk)
        if left < 0:
            raise OverflowError(f"the folder has more than {max_bytes} bytes")
        file.write(chunk)


def sweep() -> None:
    """Bring down the containers and remove the files of samples whose process is dead."""
    for project, files in compose_projects():
        if any(file.parent == _folder() and owner_is_dead(file.stem) for file in files):
            bring_down(project)
    for file in _folder().glob("sample-*.yaml"):
        if owner_is_dead(file.stem):
            file.unlink(missing_ok=True)


def _shared_file(config: SandboxEnvironmentConfigType | None) -> Path:
    """The changed compose file without runtime variables, for building images; named by its content."""
    text = _changed(config, {})
    file = _folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.yaml"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        new = file.with_name(owned_name("sample") + ".yaml")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    return file


def _sample_file(config: SandboxEnvironmentConfigType | None, runtime_vars: Mapping[str, str]) -> Path:
    """The changed compose file of one sample; it may hold secrets, so only this user can read it."""
    text = _changed(config, runtime_vars)
    file = _folder() / f"{owned_name('sample')}.yaml"
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file


def _folder() -> Path:
    folder = configuration.cache_dir().resolve() / "compose"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _changed(config: SandboxEnvironmentConfigType | None, runtime_vars: Mapping[str, str]) -> str:
    if not isinstance(config, str):
        raise ValidationError("lb-docker needs the path of a compose file as its configuration")
    source = Path(config).resolve()
    try:
        content: dict[str, Any] = for_docker(load_yaml(source), source.parent, runtime_vars)
    except ValidationError as failure:
        raise ValidationError(f"{source}: {failure}") from failure
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
