from pathlib import Path

from control_tower.environments.docker_environment import make_environment_config_from_path
from control_tower.environments.requirements import RequiredEnvVar
from control_tower.environments.tools import ToolSpec

environment = make_environment_config_from_path(
    Path(__file__).parent,
    short_description="A file of steps.",
    tech_stack=["text"],
    services=[],
    tools=[ToolSpec("ct/bash")],
    private_tools=[],
    required_env_vars=[RequiredEnvVar(name="CHAOS_TOKEN")],
)
