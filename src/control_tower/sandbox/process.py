"""The `process` sandbox: each service is plain processes in a temporary folder. It isolates nothing.

For machines where neither Docker nor bubblewrap works. A path `/x` of a service is `<folder>/<service>/x` for
files, working folders, and arguments that name something there; else commands see the host's paths, so they
must use relative ones. On Linux everything that a sample started is ended with it, wherever it moved;
elsewhere what stayed in its process group.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inspect_ai.util import SandboxConnection, SandboxEnvironmentConfigType, sandboxenv
from typing_extensions import override

from control_tower.sandbox.compose import ComposeFile, Service
from control_tower.sandbox.interpreter import host_interpreter
from control_tower.sandbox.machine import BOOTSTRAP, CommandLimits, Entry, Machine
from control_tower.sandbox.owners import kill_all, owned_name, owner_is_dead, remove_tree
from control_tower.sandbox.rootfs import HOME, PATH, service_entries
from control_tower.sandbox.services import MachineGroup, ServiceSandbox

_PREFIX = "ct-process"
_MARKER = "CT_PROCESS_SANDBOX"


@sandboxenv(name="process")  # pyright: ignore[reportUntypedClassDecorator]
class ProcessSandbox(ServiceSandbox):
    """A service as plain processes; `root` is the folder that stands for its `/`."""

    root: Path

    @override
    def path(self, file: str) -> str:
        inside = super().path(file)
        return inside if Path(inside).is_relative_to(self.root) else f"{self.root}{inside}"

    @override
    def argument(self, text: str) -> str:
        return self.path(text) if text.startswith("/") and os.path.lexists(self.path(text)) else text

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        sweep()

    @override
    @classmethod
    def make_group(cls, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> MachineGroup:
        return _ProcessGroup(compose, runtime_vars)

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if not self.machine.alive:
            raise ConnectionError(f"sandbox '{self.service.name}' is not running")
        return SandboxConnection(type="process", command=f"cd {shlex.quote(self.path(''))}")


class _ProcessGroup(MachineGroup):
    def __init__(self, compose: ComposeFile, runtime_vars: Mapping[str, str]) -> None:
        super().__init__(compose, runtime_vars)
        self._name = owned_name(_PREFIX)
        self._folder = Path(tempfile.gettempdir()).resolve() / self._name
        self._ports = _Ports([service.name for service in compose.services])

    @override
    def spawn(self, service: Service) -> ServiceSandbox:
        root = self._folder / service.name
        root.mkdir(parents=True, mode=0o700)
        runtime_vars = self.runtime_vars(service)
        own = {key: self._ports.rewrite(value) for key, value in (service.environment or {}).items()}
        environment = {
            "PATH": f"{root}/usr/local/bin:{PATH}",
            "HOME": f"{root}{HOME}",
            "TMPDIR": f"{root}/tmp",
            "LANG": "C.UTF-8",
            **own,
            **runtime_vars,
            _MARKER: self._name,
        }
        command = [host_interpreter().executable, "-I", "-S", "-c", BOOTSTRAP]
        sandbox = ProcessSandbox(service, Machine.spawn(service.name, command), environment, runtime_vars)
        sandbox.root = root
        return sandbox

    @override
    async def prepare(self, sandbox: ServiceSandbox) -> None:
        await sandbox.machine.configure(CommandLimits())
        interpreter = host_interpreter()
        entries: Sequence[Entry] = [
            *(Entry("d", path) for path in (HOME, "/tmp", "/usr/local/bin")),
            *(
                Entry("l", f"/usr/local/bin/{name}", content=os.fsencode(interpreter.executable))
                for name in interpreter.names
            ),
            *service_entries(sandbox.service),
        ]
        await sandbox.machine.populate([replace(entry, path=sandbox.path(entry.path)) for entry in entries])

    @override
    def release(self) -> None:
        _end(self._folder)


class _Ports:
    """Free ports of the host that stand for `<service>:<port>` in one sample."""

    def __init__(self, services: Sequence[str]) -> None:
        names = "|".join(re.escape(name) for name in sorted(services, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w.-])(?:{names}):([0-9]+)(?![\w.-])")
        self._given: dict[str, int] = {}

    def rewrite(self, text: str) -> str:
        return self._pattern.sub(lambda match: f"127.0.0.1:{self._port(match[0])}", text)

    def _port(self, address: str) -> int:
        if address not in self._given:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._given[address] = probe.getsockname()[1]
        return self._given[address]


def sweep() -> None:
    """End the processes and remove the folders that a dead process of this program left behind."""
    for folder in Path(tempfile.gettempdir()).resolve().glob(f"{_PREFIX}-*"):
        if owner_is_dead(folder.name):
            _end(folder)


def _end(folder: Path) -> None:
    """End the processes that carry a sample's marker, and remove its folder."""
    kill_all(_MARKER, lambda name: name == folder.name)
    remove_tree(folder)
