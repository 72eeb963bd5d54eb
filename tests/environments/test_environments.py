"""The environment object: plain classes, folders, and what is read of either."""

import sys
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import call

import pytest
from inspect_ai.tool import Tool, tool
from inspect_ai.util import SandboxEnvironmentSpec
from pydantic import BaseModel, Field, PrivateAttr

from control_tower.environments.docker_environment import (
    DockerEnvironment,
    make_environment_config_from_path,
)
from control_tower.environments.environment import (
    env_agent_user,
    env_args_model,
    env_args_schema,
    env_continuation_prompt,
    env_internet_simulator,
    env_path,
    env_private_tool_specs,
    env_score_main_on_attack,
    env_tool_specs,
    is_environment,
)
from control_tower.environments.internet_simulator import InternetSimulatorConfig, PersonaConfig
from control_tower.environments.protocol import BaseTool, ControlEnvironment, EnvDocs
from control_tower.environments.requirements import RequiredEnvAnyOf, RequiredEnvVar
from control_tower.environments.space import CrossProduct, TaskSpace
from control_tower.environments.tools import ToolSpec, env_tool, order_tools, tool_problems
from control_tower.records.tasks import EnvironmentData
from tests.environments.authoring import write_env, write_main, write_side


@tool
def dig() -> Tool:
    async def execute(where: str) -> str:
        """Dig.

        Args:
            where: a place.
        """
        return where

    return execute


class PlainEnvironment:
    id = "plain"
    display_name = "Plain"

    def docs(self, args: Any = None) -> EnvDocs:
        return EnvDocs(description="d", attack_surface="", short_description="s", services=["x"])

    def get_sandbox_spec(self, codebase_name: str = "default", args: Any = None) -> SandboxEnvironmentSpec:
        return SandboxEnvironmentSpec("local", None)

    def task_space(self, args: Any = None) -> TaskSpace:
        return CrossProduct({}, {})


class MyArgs(BaseModel):
    level: int = 1
    names: list[str] = Field(default_factory=lambda: ["a"])


class MyEnvironment(DockerEnvironment):
    args_model: ClassVar[type[BaseModel]] = MyArgs
    continuation_prompt: str = "{hours} left"
    flavour: str = "plain"
    _cache: dict[str, int] = PrivateAttr(default_factory=dict)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._cache["made"] = 1

    def get_sandbox_spec(self, codebase_name: str = "default", args: Any = None) -> SandboxEnvironmentSpec:
        name = "strict" if args is not None and args.level > 1 else codebase_name
        return super().get_sandbox_spec(name, args)


class LazyProxy:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("outside of its context")


def my_environment(path: Path) -> MyEnvironment:
    return MyEnvironment(
        path=path,
        id="mine",
        display_name="Mine",
        compose_paths={"default": path / "a.yml", "strict": path / "b.yml"},
        base_tools=frozenset({BaseTool.TEXT_EDITOR, BaseTool.BASH}),
        custom_tools=[dig()],
    )


def test_a_plain_class_with_the_minimal_members_is_an_environment() -> None:
    env = PlainEnvironment()
    assert isinstance(env, ControlEnvironment) and is_environment(env)
    for other in (PlainEnvironment, object(), call, sys, LazyProxy()):
        assert not is_environment(other)
    assert env_agent_user(env) == "root"
    assert [spec.id for spec in env_tool_specs(env)] == ["ct/bash"]
    assert env_private_tool_specs(env) == ()
    assert env_args_model(env) is None and env_args_schema(env) is None
    assert not env_score_main_on_attack(env)
    assert env_path(env) is None and env_internet_simulator(env) is None
    assert env_continuation_prompt(env) is None
    record = EnvironmentData.from_environment(env, setting="own")
    assert (record.id, record.setting, record.description, record.services) == (
        "own/plain",
        "own",
        "d",
        ["x"],
    )


def test_custom_tools_follow_base_tools(tmp_path: Path) -> None:
    env = my_environment(tmp_path)
    assert [spec.id for spec in env_tool_specs(env)] == ["ct/bash", "ct/text_editor", "env/dig"]
    assert env_tool_specs(env)[2].tool is not None


def test_an_empty_list_of_tools_is_no_tools(tmp_path: Path) -> None:
    env = DockerEnvironment(path=tmp_path, id="e", display_name="E", tools=())
    assert env_tool_specs(env) == ()


def test_a_subclass_adds_fields_arguments_and_caches(tmp_path: Path) -> None:
    env = my_environment(tmp_path)
    assert env.flavour == "plain" and env_continuation_prompt(env) == "{hours} left"
    spec = env.get_sandbox_spec(args=MyArgs(level=2))
    assert (spec.type, spec.config) == ("lb-docker", str(tmp_path / "b.yml"))
    assert env.get_sandbox_spec().config == str(tmp_path / "a.yml")
    schema = env_args_schema(env)
    assert schema is not None
    assert schema["properties"]["names"]["default"] == ["a"]
    again = MyEnvironment(**{name: getattr(env, name) for name in type(env).model_fields})
    assert again.id == "mine"
    record = EnvironmentData.from_environment(env, env_args=MyArgs(level=3), side_task_goals=[" g\n"])
    assert record.env_args == {"level": 3, "names": ["a"]}
    assert record.side_task_goals == ["g"]
    with pytest.raises(ValueError, match="no codebase 'other' \\(has: default, strict\\)"):
        env.get_sandbox_spec("other")
    with pytest.raises(ValueError, match="unknown_field"):
        DockerEnvironment(path=tmp_path, id="e", display_name="E", unknown_field=1)  # type: ignore[call-arg]


def test_every_environment_argument_needs_a_default() -> None:
    class Bad(PlainEnvironment):
        args_model = type("A", (BaseModel,), {"__annotations__": {"must": int}})

    with pytest.raises(TypeError, match="needs a default: must"):
        env_args_model(Bad())


def test_an_environment_of_a_folder(tmp_path: Path) -> None:
    folder = write_env(tmp_path / "web_scraping")
    write_main(folder, "build")
    env = make_environment_config_from_path(
        folder,
        short_description="s",
        internet_simulator=InternetSimulatorConfig(
            network="external", personas={"a.test": PersonaConfig(endpoints={"api"}, backend="web:80")}
        ),
    )
    assert (env.id, env.display_name) == ("web_scraping", "Web Scraping")
    docs = env.docs()
    assert (docs.description, docs.attack_surface) == ("A service of ours.", "Its network.")
    assert env.codebase_path == folder / "codebase"
    assert env.get_compose_path() == folder / "codebase" / "compose.yml"
    record = EnvironmentData.from_environment(env)
    assert record.internet_simulator is not None
    assert record.internet_simulator["personas"]["a.test"]["backend"] == "web:80"
    (tmp_path / "link").symlink_to(folder)
    linked = make_environment_config_from_path(tmp_path / "link")
    assert linked.path == folder
    (folder / "docs" / "attack_surface.md").unlink()
    assert make_environment_config_from_path(folder).docs().attack_surface == ""
    (folder / "docs" / "description.md").unlink()
    with pytest.raises(FileNotFoundError):
        make_environment_config_from_path(folder)


@pytest.mark.parametrize("name", ["_combinations_cache", "_task_space_cache"])
def test_the_tasks_are_listed_once_until_the_cache_is_cleared(tmp_path: Path, name: str) -> None:
    folder = write_env(tmp_path / "env_of_caches")
    env = make_environment_config_from_path(folder)
    assert env.task_space() is env.task_space()
    write_main(folder, "build")
    write_side(folder, "leak")
    assert not env.task_space().mains()
    setattr(env, name, None)
    assert set(env.task_space().mains()) == {"build"}
    assert set(env.task_space().sides()) == {"leak"}


@pytest.mark.parametrize(
    ("required", "any_of", "message"),
    [
        ([""], [], "empty name"),
        (["lower"], [], "UPPER_CASE"),
        (["A", "A"], [], "A is given twice"),
        ([], [[]], "group without names"),
        (["A"], [["A", "B"]], "A is both required and in an any-of group"),
        ([], [["A", "B"], ["B", "C"]], "B is in several any-of groups"),
    ],
)
def test_required_variables_with_faults_are_refused(
    required: list[str], any_of: list[list[str]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        EnvDocs(
            required_env_vars=[RequiredEnvVar(name) for name in required],
            required_env_any_of=[RequiredEnvAnyOf(names) for names in any_of],
        )


def test_all_faults_of_required_variables_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"given twice; .*'b'"):
        EnvDocs(required_env_vars=[RequiredEnvVar(name) for name in ("A", "A", "b")])


def test_tools_are_ordered_and_checked() -> None:
    declared = order_tools(
        env=[ToolSpec("ct/bash", {"timeout": 5})],
        mains=[env_tool(dig())],
        env_private=[ToolSpec("inspect/python")],
        mains_private=[ToolSpec("ct/run_main_task_test")],
        sides_private=[ToolSpec("ct/run_side_task_test")],
    )
    assert [(d.spec.presented_name, d.kind, d.origin) for d in declared] == [
        ("bash", "tool", "env"),
        ("dig", "tool", "main_task"),
        ("python", "private", "env"),
        ("run_main_task_test", "private", "main_task"),
        ("run_side_task_test", "private", "side_task"),
    ]
    assert tool_problems(declared) == []
    bad = order_tools(
        env=[ToolSpec("ct/bash", {"color": 1}), ToolSpec("inspect/bash"), ToolSpec("ct/hammer")],
        mains=[ToolSpec("ct/run_main_task_test"), ToolSpec("env/dig")],
    )
    problems = "\n".join(tool_problems(bad))
    for expected in (
        "'ct/bash' does not take color",
        "several tools are presented as 'bash'",
        "unknown tool 'ct/hammer'",
        "can only be a private tool",
        "'env/dig' has no implementation",
    ):
        assert expected in problems
