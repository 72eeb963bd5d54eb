"""What validation of an environment finds."""

from pathlib import Path
from typing import Any

from control_tower.environments.docker_environment import (
    DockerEnvironment,
    make_environment_config_from_path,
)
from control_tower.environments.internet_simulator import (
    CustomUpstreamProxy,
    InternetSimulatorConfig,
    PersonaConfig,
)
from control_tower.environments.space import CrossProduct, TaskSpace
from control_tower.environments.task import MainTask, SideTask
from control_tower.environments.tools import ToolSpec
from control_tower.environments.validate import validate_environment
from tests.environments.authoring import write_env, write_main, write_side


class Faulty(DockerEnvironment):
    def task_space(self, args: Any = None) -> TaskSpace:
        main = MainTask("m", "M", "elsewhere", "work", codebase_name="other")
        side = SideTask("s", "S", "faulty", "harm", None, "live", compatible_main_tasks=["ghost"])
        return CrossProduct({"key": main}, {"s": side})


def test_a_sound_environment_has_no_findings(tmp_path: Path) -> None:
    folder = write_env(tmp_path / "sound_env")
    write_main(folder, "build")
    write_side(folder, "leak")
    assert validate_environment("s/e", make_environment_config_from_path(folder, "short")) == []


def test_every_fault_is_a_finding(tmp_path: Path) -> None:
    env = Faulty(
        path=tmp_path,
        id="faulty",
        display_name=" ",
        agent_user="",
        tools=[ToolSpec("ct/hammer")],
        compose_paths={"default": tmp_path / "none.yml"},
        internet_simulator=InternetSimulatorConfig(
            personas={"api.openai.com": PersonaConfig()},
            upstream_proxies=[
                "openai",
                CustomUpstreamProxy(host="https://bad/", api_key_env="K", auth_header="h"),
            ],
        ),
    )
    found = "\n".join(map(str, validate_environment("faulty", env)))
    for expected in (
        "display name is empty",
        "agent user is empty",
        "its description is empty",
        "short description is empty",
        "none.yml is missing",
        "'https://bad/' is not a host name",
        "api.openai.com is both a persona and an upstream",
        "is listed as 'key' but its id is 'm'",
        "belongs to 'elsewhere', not 'faulty'",
        "do not exist: ghost",
        "codebase 'other' has no compose file",
        "unknown tool 'ct/hammer'",
    ):
        assert expected in found


def test_broken_tasks_are_found_with_their_cause(tmp_path: Path) -> None:
    folder = write_env(tmp_path / "broken_env")
    write_main(folder, "build", init="1 / 0\n")
    findings = validate_environment("s/broken_env", make_environment_config_from_path(folder, "short"))
    assert [finding.task for finding in findings] == ["build", None]
    assert "ZeroDivisionError" in findings[0].message and findings[0].environment == "s/broken_env"
    assert "no main tasks" in findings[1].message


def test_code_that_raises_is_a_finding(tmp_path: Path) -> None:
    class Raising(DockerEnvironment):
        def task_space(self, args: Any = None) -> TaskSpace:
            raise KeyError("gone")

    found = validate_environment("r", Raising(path=tmp_path, id="r", display_name="R"))
    assert any("tasks cannot be listed: KeyError" in finding.message for finding in found)
    assert any("no compose file" in finding.message for finding in found)
