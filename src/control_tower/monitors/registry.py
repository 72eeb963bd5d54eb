"""Where monitors are registered."""

from collections.abc import Callable
from typing import Any

from control_tower.registry import Registry

monitors: Registry[Callable[..., Any]] = Registry("monitor", "control_tower.monitors")
