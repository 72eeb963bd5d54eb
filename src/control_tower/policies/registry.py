"""Where policies are registered."""

from collections.abc import Callable
from typing import Any

from control_tower.registry import Registry

policies: Registry[Callable[..., Any]] = Registry("policy", "control_tower.policies")
