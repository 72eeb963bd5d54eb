"""Where protocols are registered."""

from collections.abc import Callable
from typing import Any

from control_tower.registry import Registry

protocols: Registry[Callable[..., Any]] = Registry("protocol", "control_tower.protocols")
