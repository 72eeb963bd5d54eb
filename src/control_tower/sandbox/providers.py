"""Registers our sandbox types with Inspect when it is imported: `bwrap`, `process`, `lb-docker`, `replay`."""

from control_tower.sandbox.bwrap import BubblewrapSandbox
from control_tower.sandbox.docker import DockerSandbox
from control_tower.sandbox.process import ProcessSandbox
from control_tower.sandbox.replay import ReplaySandbox

__all__ = ["BubblewrapSandbox", "DockerSandbox", "ProcessSandbox", "ReplaySandbox"]
