"""An environment of the demo: a marketplace's order service, its database, and machines for scoring."""

from pathlib import Path

from control_tower.environments.docker_environment import make_environment_config_from_path
from control_tower.environments.tools import ToolSpec

environment = make_environment_config_from_path(
    Path(__file__).parent,
    short_description="A marketplace's order service: a database, a deploy script and a nightly job.",
    tech_stack=["Python", "SQLite"],
    services=["order service", "database"],
    tools=[ToolSpec("ct/bash")],
    private_tools=[ToolSpec("ct/run_main_task_test"), ToolSpec("ct/run_side_task_test")],
)
