"""The environment object: the few members an author must give, and readers that fill in the others."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from control_tower.environments.tools import ToolSpec, env_tool
from control_tower.records.tasks import EnvironmentData

if TYPE_CHECKING:
    from inspect_ai.tool import Tool
    from inspect_ai.util import SandboxEnvironmentSpec

    from control_tower.environments.internet_simulator import InternetSimulatorConfig
    from control_tower.environments.requirements import RequiredEnvAnyOf, RequiredEnvVar
    from control_tower.environments.space import TaskSpace

__all__ = [
    "ENV_VAR_NAME",
    "BaseTool",
    "ControlEnvironment",
    "EnvDocs",
    "EnvironmentData",
    "env_agent_user",
    "env_args_model",
    "env_args_schema",
    "env_base_tools",
    "env_continuation_prompt",
    "env_custom_tools",
    "env_internet_simulator",
    "env_path",
    "env_private_tool_specs",
    "env_score_main_on_attack",
    "env_tool_specs",
    "is_environment",
]

ENV_VAR_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


class BaseTool(Enum):
    """The two tools that an environment without a `tools` list can name in `base_tools`."""

    BASH = "bash"
    TEXT_EDITOR = "text_editor"


@dataclass(frozen=True)
class EnvDocs:
    """What the agent, red and a reader are told about an environment.

    `description` is for the agent, `attack_surface` for red, `short_description` for lists.

    Raises:
        ValueError: required variables with bad, duplicate or overlapping names; all faults in one message.
    """

    description: str = ""
    attack_surface: str = ""
    short_description: str = ""
    tech_stack: Sequence[str] = field(default_factory=list[str])
    services: Sequence[str] = field(default_factory=list[str])
    required_env_vars: Sequence[RequiredEnvVar] = ()
    required_env_any_of: Sequence[RequiredEnvAnyOf] = ()

    def __post_init__(self) -> None:
        if problems := _requirement_problems(self.required_env_vars, self.required_env_any_of):
            raise ValueError("; ".join(problems))


def _requirement_problems(
    required: Sequence[RequiredEnvVar], any_of: Sequence[RequiredEnvAnyOf]
) -> list[str]:
    problems = _name_problems([variable.name for variable in required], "required_env_vars")
    taken = {variable.name for variable in required}
    grouped: set[str] = set()
    for group in any_of:
        if not group.names:
            problems.append("required_env_any_of has a group without names")
        problems += _name_problems(list(group.names), "required_env_any_of")
        names = set(group.names)
        problems += [f"{name} is both required and in an any-of group" for name in sorted(names & taken)]
        problems += [f"{name} is in several any-of groups" for name in sorted(names & grouped)]
        grouped |= names
    return problems


def _name_problems(names: Sequence[str], where: str) -> list[str]:
    problems: list[str] = []
    for name, count in Counter(names).items():
        if not name:
            problems.append(f"{where} has an empty name")
        elif not ENV_VAR_NAME.fullmatch(name):
            problems.append(f"{where}: {name!r} is not of the form UPPER_CASE_1")
        elif count > 1:
            problems.append(f"{where}: {name} is given twice")
    return problems


@runtime_checkable
class ControlEnvironment(Protocol):
    """What every environment has; any class with these members is one.

    Optional members, read by the functions of this module: `tools`, `private_tools` (lists of `ToolSpec`),
    `agent_user`, `args_model`, `score_main_on_attack`, `internet_simulator`, `continuation_prompt`, `path`;
    in place of `tools` also `base_tools`, `custom_tools` and `custom_private_tools`.
    """

    @property
    def id(self) -> str:
        """The name the environment is selected by, without its setting's."""
        ...

    @property
    def display_name(self) -> str:
        """The name in tables and pages."""
        ...

    def docs(self, args: Any = None) -> EnvDocs:
        """Its texts; `args` is a validated instance of `args_model` or None."""
        ...

    def get_sandbox_spec(self, codebase_name: str = "default", args: Any = None) -> SandboxEnvironmentSpec:
        """The sandbox of a sample on the named codebase."""
        ...

    def task_space(self, args: Any = None) -> TaskSpace:
        """The tasks it has and how they may be combined."""
        ...


_MEMBERS = ("id", "display_name", "docs", "get_sandbox_spec", "task_space")


def is_environment(candidate: object) -> bool:
    """Whether an object (not a class) is an environment.

    It is asked of everything in an author's module, so nothing is called or made by looking.
    """
    if isinstance(candidate, (type, ModuleType)):
        return False
    return all(inspect.getattr_static(candidate, name, None) is not None for name in _MEMBERS)


def env_agent_user(env: object) -> str:
    """The user the agent's commands run as; root unless the environment says otherwise."""
    user: str | None = getattr(env, "agent_user", None)
    return "root" if user is None else user


def env_score_main_on_attack(env: object) -> bool:
    """Whether main tasks are scored on attack samples too."""
    return bool(getattr(env, "score_main_on_attack", False))


def env_internet_simulator(env: object) -> InternetSimulatorConfig | None:
    """The simulated internet it declares, if any."""
    return getattr(env, "internet_simulator", None)


def env_continuation_prompt(env: object) -> str | None:
    """The text that asks an idle agent to go on; may hold `{hours}` and `{minutes}`."""
    return getattr(env, "continuation_prompt", None)


def env_path(env: object) -> Path | None:
    """The folder it was written in, resolved; None for environments without one."""
    path: str | Path | None = getattr(env, "path", None)
    return None if path is None else Path(path).resolve()


def env_tool_specs(env: object) -> tuple[ToolSpec, ...]:
    """The interaction tools: `tools` as declared (an empty list is no tools), else base and custom ones."""
    declared: Sequence[ToolSpec] | None = getattr(env, "tools", None)
    if declared is not None:
        return tuple(declared)
    base = env_base_tools(env)
    shipped = tuple(ToolSpec(f"ct/{tool.value}") for tool in BaseTool if tool in base)
    return (*shipped, *(env_tool(tool) for tool in env_custom_tools(env)))


def env_private_tool_specs(env: object) -> tuple[ToolSpec, ...]:
    """The tools only red sees, and only those it chooses."""
    declared: Sequence[ToolSpec] | None = getattr(env, "private_tools", None)
    if declared is not None:
        return tuple(declared)
    custom: Sequence[Tool] = getattr(env, "custom_private_tools", None) or ()
    return tuple(env_tool(tool) for tool in custom)


def env_base_tools(env: object) -> frozenset[BaseTool]:
    """The shipped tools of an environment without a `tools` list; bash when it names none."""
    declared: frozenset[BaseTool] | None = getattr(env, "base_tools", None)
    return frozenset({BaseTool.BASH}) if declared is None else frozenset(declared)


def env_custom_tools(env: object) -> list[Tool]:
    """The author's own tools of an environment without a `tools` list."""
    custom: Sequence[Tool] | None = getattr(env, "custom_tools", None)
    return list(custom or ())


def env_args_model(env: object) -> type[BaseModel] | None:
    """The model of the environment's arguments, None when it takes none.

    Raises:
        TypeError: it is no pydantic model, or a field has no default.
    """
    model: object = getattr(env, "args_model", None)
    if model is None:
        return None
    owner = getattr(env, "id", type(env).__name__)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{owner}: args_model must be a pydantic BaseModel class")
    mandatory = [name for name, info in model.model_fields.items() if info.is_required()]
    if mandatory:
        raise TypeError(f"{owner}: every environment argument needs a default: {', '.join(mandatory)}")
    return model


def env_args_schema(env: object) -> dict[str, Any] | None:
    """The JSON schema of its arguments, with computed defaults filled in; None when it takes none."""
    model = env_args_model(env)
    if model is None:
        return None
    schema = model.model_json_schema()
    properties = cast(dict[str, dict[str, Any]], schema.get("properties", {}))
    for name, info in model.model_fields.items():
        published = properties.get(info.alias or name)
        if published is not None and "default" not in published:
            published["default"] = to_jsonable_python(info.get_default(call_default_factory=True))
    return schema
