"""The `bwrap` sandbox: each service of a compose file is a machine isolated by bubblewrap."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import anyio
from inspect_ai.util import SandboxConnection, SandboxEnvironment, SandboxEnvironmentConfigType, sandboxenv
from typing_extensions import override

from control_tower.errors import StateError
from control_tower.sandbox import cgroups
from control_tower.sandbox.cgroups import ControlGroup
from control_tower.sandbox.compose import ComposeFile, Service
from control_tower.sandbox.interpreter import host_interpreter
from control_tower.sandbox.machine import CommandLimits, Machine
from control_tower.sandbox.namespaces import Network, bubblewrap_problem, filter_file
from control_tower.sandbox.rootfs import base_environment, machine_entries
from control_tower.sandbox.services import ServiceSandbox, compose_of, default_first, runtime_vars_of

DEFAULT_MEMORY = 2 << 30
DEFAULT_PROCESSES = 512
DEFAULT_DISK = 512 << 20


@sandboxenv(name="bwrap")  # pyright: ignore[reportUntypedClassDecorator]
class BubblewrapSandbox(ServiceSandbox):
    """A machine with its own mounts, processes and users, on a private network with its neighbours."""

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        if problem := bubblewrap_problem():
            raise StateError(problem)
        cgroups.sweep()

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        compose = compose_of(config, metadata)
        group = _Group(compose, runtime_vars_of(cast(dict[str, Any], metadata)))
        try:
            return default_first(await group.start())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await group.stop()
            raise

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        group = next(iter(environments.values())).as_type(BubblewrapSandbox).group
        with anyio.CancelScope(shield=True):
            await group.stop()

    group: _Group

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if not self.machine.alive:
            raise ConnectionError(f"sandbox '{self.service.name}' is not running")
        command = [sys.executable, "-m", "control_tower.sandbox.enter", str(self.machine.process.pid)]
        return SandboxConnection(type="bwrap", command=shlex.join(command))


class _Group:
    """The machines and networks of one sample."""

    def __init__(self, compose: ComposeFile, runtime_vars: dict[str, str]) -> None:
        self._compose = compose
        self._runtime_vars = runtime_vars
        self._networks: dict[str, Network] = {}
        self._cgroups: list[ControlGroup] = []
        self.machines: dict[str, BubblewrapSandbox] = {}

    async def start(self) -> dict[str, BubblewrapSandbox]:
        if problem := bubblewrap_problem():
            raise StateError(problem)
        for service in self._compose.services:
            self.machines[service.name] = self._spawn(service)
        for machine in self.machines.values():
            await self._prepare(machine)
        for machine in self.machines.values():
            await machine.start_service()
        return self.machines

    def _spawn(self, service: Service) -> BubblewrapSandbox:
        key = service.network if service.network is not None else f"none {service.name}"
        if key not in self._networks:
            self._networks[key] = Network.start()
        filter_fd = filter_file()
        fds = () if filter_fd is None else (filter_fd,)
        try:
            command = self._networks[key].machine_command(
                service.name, service.disk_limit or DEFAULT_DISK, filter_fd
            )
            machine = Machine.spawn(service.name, command, pass_fds=fds)
        finally:
            for fd in fds:
                os.close(fd)
        runtime_vars = self._runtime_vars if service.name == "default" else {}
        environment = {**base_environment(), **(service.environment or {}), **runtime_vars}
        sandbox = BubblewrapSandbox(service, machine, environment, runtime_vars)
        sandbox.group = self
        return sandbox

    async def _prepare(self, sandbox: BubblewrapSandbox) -> None:
        limits = self._limits(sandbox.service)
        try:
            await sandbox.machine.configure(limits)
        finally:
            for fd in limits.cgroup_files:
                os.close(fd)
        neighbours = self._compose.neighbours(sandbox.service)
        await sandbox.machine.populate(machine_entries(sandbox.service, neighbours, host_interpreter()))

    def _limits(self, service: Service) -> CommandLimits:
        memory = service.mem_limit or DEFAULT_MEMORY
        processes = service.pids_limit or DEFAULT_PROCESSES
        group = ControlGroup.create(memory + (service.disk_limit or DEFAULT_DISK), processes)
        if group is not None:
            self._cgroups.append(group)
            return CommandLimits(processes if _counts_per_sandbox() else None, None, group.open_members())
        return CommandLimits(processes if _counts_per_sandbox() else None, memory)

    async def stop(self) -> None:
        """End every machine; nothing of the sample is left when this returns."""
        ending: Sequence[Machine | Network] = [
            *(sandbox.machine for sandbox in self.machines.values()),
            *self._networks.values(),
        ]
        for sandbox in self.machines.values():
            if sandbox.background is not None:
                sandbox.background.close()
        for thing in ending:
            thing.stop()
        await anyio.to_thread.run_sync(self._wait_stopped, ending)

    def _wait_stopped(self, ending: Sequence[Machine | Network]) -> None:
        for thing in ending:
            thing.wait_stopped()
        for group in self._cgroups:
            group.remove()


@cache
def _counts_per_sandbox() -> bool:
    """Whether RLIMIT_NPROC counts the processes of a user namespace only (Linux 5.14)."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (5, 14)
