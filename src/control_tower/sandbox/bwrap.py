"""The `bwrap` sandbox: each service of a compose file is a machine isolated by bubblewrap."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache

from inspect_ai.util import SandboxConnection, SandboxEnvironmentConfigType, sandboxenv
from typing_extensions import override

from control_tower.errors import StateError
from control_tower.sandbox import cgroups
from control_tower.sandbox.cgroups import ControlGroup
from control_tower.sandbox.compose import ComposeFile, Service
from control_tower.sandbox.interpreter import host_interpreter
from control_tower.sandbox.machine import CommandLimits, Machine
from control_tower.sandbox.namespaces import Network, bubblewrap_problem, filter_file
from control_tower.sandbox.rootfs import base_environment, machine_entries
from control_tower.sandbox.services import MachineGroup, ServiceSandbox

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
    def make_group(cls, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> MachineGroup:
        return _BubblewrapGroup(compose, runtime_vars)

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if not self.machine.alive:
            raise ConnectionError(f"sandbox '{self.service.name}' is not running")
        pid, folder = str(self.machine.process.pid), self.path("")
        command = [sys.executable, "-m", "control_tower.sandbox.enter", pid, folder]
        return SandboxConnection(type="bwrap", command=shlex.join(command))


class _BubblewrapGroup(MachineGroup):
    def __init__(self, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> None:
        super().__init__(compose, runtime_vars)
        self._networks: dict[str, Network] = {}
        self._cgroups: list[ControlGroup] = []
        if problem := bubblewrap_problem():
            raise StateError(problem)

    @override
    def spawn(self, service: Service) -> ServiceSandbox:
        key = service.network if service.network is not None else f"none {service.name}"
        if key not in self._networks:
            self._networks[key] = Network.start()
        filter_fd = filter_file()
        disk = service.disk_limit or DEFAULT_DISK
        try:
            command = self._networks[key].machine_command(service.name, disk, filter_fd)
            machine = Machine.spawn(service.name, command, pass_fds=() if filter_fd is None else (filter_fd,))
        finally:
            if filter_fd is not None:
                os.close(filter_fd)
        runtime_vars = self.runtime_vars(service)
        environment = {**base_environment(), **(service.environment or {}), **runtime_vars}
        return BubblewrapSandbox(service, machine, environment, runtime_vars)

    @override
    async def prepare(self, sandbox: ServiceSandbox) -> None:
        limits = self._limits(sandbox.service)
        try:
            await sandbox.machine.configure(limits)
        finally:
            for fd in limits.cgroup_files:
                os.close(fd)
        neighbours = self.compose.neighbours(sandbox.service)
        await sandbox.machine.populate(machine_entries(sandbox.service, neighbours, host_interpreter()))

    def _limits(self, service: Service) -> CommandLimits:
        """Files count as memory in a control group, so it holds both; without one, limits are by process."""
        memory = service.mem_limit or DEFAULT_MEMORY
        processes = service.pids_limit or DEFAULT_PROCESSES
        counted = processes if _counts_per_sandbox() else None
        group = ControlGroup.create(memory + (service.disk_limit or DEFAULT_DISK), processes)
        if group is None:
            return CommandLimits(counted, memory)
        self._cgroups.append(group)
        return CommandLimits(counted, None, group.open_members())

    @override
    def release(self) -> None:
        for network in self._networks.values():
            network.stop()
        for group in self._cgroups:
            group.remove()


@cache
def _counts_per_sandbox() -> bool:
    """Whether RLIMIT_NPROC counts the processes of a user namespace only (Linux 5.14)."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (5, 14)
