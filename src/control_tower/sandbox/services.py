"""The machines of one sample, whatever isolates them: started in order, used as Inspect sandboxes, ended."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
)
from typing_extensions import override

from control_tower.environments.runtime_vars import RuntimeVarsSandbox, fresh
from control_tower.errors import StateError, ValidationError
from control_tower.sandbox.compose import ComposeFile, Service, read_compose, sample_variables
from control_tower.sandbox.machine import Background, Machine

_FIRST_LOOK, _LONGEST_PAUSE, _LAST_WORDS = 0.02, 0.5, 0.2
_ROOT_NAMES = (None, "root", "0", "0:0", "root:root")


class ServiceSandbox(RuntimeVarsSandbox):
    """One machine of a sample."""

    def __init__(
        self,
        service: Service,
        machine: Machine,
        environment: Mapping[str, str],
        runtime_vars: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.service = service
        self.machine = machine
        self.runtime_vars = dict(runtime_vars)
        self._environment = dict(environment)
        self.background: Background | None = None
        self.group: MachineGroup | None = None

    @classmethod
    @abstractmethod
    def make_group(cls, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> MachineGroup:
        """The group of a new sample, not yet started."""

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start the machines of a compose file; `default`, the agent's, is the first.

        Raises:
            ValidationError: `config` is no path of a compose file that runs without Docker.
            StateError: a machine or service did not start.
        """
        if not isinstance(config, str):
            raise ValidationError("this sandbox needs the path of a compose file as its configuration")
        compose = read_compose(Path(config), sample_variables(metadata))
        group = cls.make_group(compose, fresh(metadata))
        try:
            await group.start()
        except BaseException:
            await group.stop()
            raise
        for sandbox in group.machines.values():
            sandbox.group = group
        return {"default": group.machines["default"], **group.machines}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        group = next(iter(environments.values())).as_type(ServiceSandbox).group
        if group is not None:
            await group.stop()

    def path(self, file: str) -> str:
        """A path as commands see it; relative ones are below the working folder."""
        return posixpath.join(self.service.working_dir, file)

    def argument(self, text: str) -> str:
        """A command's word as it is run."""
        return text

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
        """Run a command; see `Machine.exec`. A timed out command is never tried again."""
        if user not in _ROOT_NAMES:
            raise SandboxUserUnsupportedError(
                f"sandbox '{self.service.name}' has only root: it cannot run a command as '{user}'"
            )
        return await self.machine.exec(
            [self.argument(text) for text in cmd],
            cwd=self.path(cwd or ""),
            env={**self._environment, **(env or {})},
            stdin=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
        )

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await self.machine.write_file(self.path(file), data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        data = await self.machine.read_file(self.path(file), SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        return data.decode("utf-8") if text else data

    @override
    async def archive(self, path: str, destination: Path, *, max_bytes: int, timeout: int) -> bool:
        await self.machine.archive(self.path(path), destination, max_bytes=max_bytes, timeout=timeout)
        return True

    @override
    def default_polling_interval(self) -> float:
        return 0.2

    async def start_service(self) -> None:
        """Start the service's own command and wait until it is healthy.

        Raises:
            StateError: it ended or did not get healthy; the message has the end of its output.
        """
        if self.service.command is not None:
            self.background = await self.machine.start(
                self.service.command, cwd=self.path(""), env=self._environment
            )
        check = self.service.healthcheck
        if check is None:
            return
        pause, last = _FIRST_LOOK, ""
        with anyio.move_on_after(check.patience):
            while True:
                if self.background is not None and self.background.ended:
                    break
                try:
                    result = await self.exec(list(check.test), timeout=max(1, round(check.timeout)))
                except TimeoutError:
                    last = "its health check timed out"
                else:
                    if result.success:
                        return
                    last = (result.stderr or result.stdout).strip()
                await anyio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)
        await anyio.sleep(_LAST_WORDS)
        output = self.background.output() if self.background is not None else ""
        raise StateError(f"service '{self.service.name}' did not get ready: {output[-500:] or last[-500:]}")


class MachineGroup(ABC):
    """The machines of one sample; providers say how one is started, and what to release at the end."""

    def __init__(self, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> None:
        self.compose = compose
        self.machines: dict[str, ServiceSandbox] = {}
        self._runtime_vars = runtime_vars

    def runtime_vars(self, service: Service) -> Mapping[str, str]:
        return self._runtime_vars if service.name == "default" else {}

    @abstractmethod
    def spawn(self, service: Service) -> ServiceSandbox:
        """Start a machine without waiting for it."""

    @abstractmethod
    async def prepare(self, sandbox: ServiceSandbox) -> None:
        """Wait for a machine, and give it its limits and files."""

    @abstractmethod
    def release(self) -> None:
        """Free what the machines used; they have ended."""

    async def start(self) -> None:
        """Start all machines, then their commands in the order of the compose file's dependencies."""
        for service in self.compose.services:
            self.machines[service.name] = self.spawn(service)
        for sandbox in self.machines.values():
            await self.prepare(sandbox)
        for sandbox in self.machines.values():
            await sandbox.start_service()

    async def stop(self) -> None:
        """End every machine; nothing of the sample is left when this returns."""
        with anyio.CancelScope(shield=True):
            for sandbox in self.machines.values():
                if sandbox.background is not None:
                    sandbox.background.close()
                sandbox.machine.stop()
            await anyio.to_thread.run_sync(self._finish)

    def _finish(self) -> None:
        for sandbox in self.machines.values():
            sandbox.machine.wait_stopped()
        self.release()
