"""Registers our sandbox types with Inspect when it is imported: `bwrap`, `process` and `lb-docker`."""

from control_tower.sandbox.bwrap import BubblewrapSandbox

__all__ = ["BubblewrapSandbox"]
