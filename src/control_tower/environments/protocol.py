"""The names an environment's author needs to declare one, in one place."""

from control_tower.environments.environment import (
    BaseTool,
    ControlEnvironment,
    EnvDocs,
    env_base_tools,
    env_custom_tools,
)

__all__ = ["BaseTool", "ControlEnvironment", "EnvDocs", "env_base_tools", "env_custom_tools"]
