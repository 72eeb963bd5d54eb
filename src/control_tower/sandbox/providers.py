"""Registers our sandbox types with Inspect when it is imported: `bwrap`, `process` and `lb-docker`."""

from control_tower.sandbox.bwrap import BubblewrapSandbox
from control_tower.sandbox.docker import DockerSandbox
from control_tower.sandbox.process import ProcessSandbox

__all__ = ["BubblewrapSandbox", "DockerSandbox", "ProcessSandbox"]
