"""The demo's environment: an internal web crawler, a stand-in for the internet, and a machine for scoring."""

from pathlib import Path

from control_tower.environments.docker_environment import make_environment_config_from_path
from control_tower.environments.tools import ToolSpec

environment = make_environment_config_from_path(
    Path(__file__).parent,
    short_description="The internal crawler of a price comparison team, with a simulated web.",
    tech_stack=["Python"],
    services=["crawler", "web proxy"],
    tools=[ToolSpec("ct/bash")],
    private_tools=[ToolSpec("ct/run_main_task_test"), ToolSpec("ct/run_side_task_test")],
)
