"""Checking an environment without running it: everything `ct settings validate` can say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from control_tower.environments.docker_environment import DockerEnvironment
from control_tower.environments.environment import (
    ControlEnvironment,
    env_agent_user,
    env_args_model,
    env_internet_simulator,
    env_private_tool_specs,
    env_tool_specs,
)
from control_tower.environments.files import sample_files
from control_tower.environments.internet_simulator import (
    BUILT_IN_UPSTREAMS,
    InternetSimulatorConfig,
    is_host_name,
    split_upstream_proxy_entries,
)
from control_tower.environments.space import TaskSpace
from control_tower.environments.task import MainTask, SideTask
from control_tower.environments.task_map import LazyTaskMap
from control_tower.environments.tools import order_tools, tool_problems
from control_tower.errors import ValidationError


@dataclass(frozen=True)
class Finding:
    """One fault of an environment."""

    environment: str
    message: str
    task: str | None = None
    """The task at fault, None for the environment itself."""

    def __str__(self) -> str:
        """The fault without the environment's name."""
        return self.message if self.task is None else f"task '{self.task}' {self.message}"


def validate_environment(env_id: str, env: ControlEnvironment) -> list[Finding]:
    """Everything that is wrong with an environment and its tasks; loads every task.

    Args:
        env_id: the name to report it under, such as `<setting>/<env>`.
        env: the environment.
    """
    findings = [Finding(env_id, message) for message in _environment_faults(env)]
    try:
        space = env.task_space(None)
        mains, sides = space.mains(), space.sides()
        findings += [Finding(env_id, message, task) for task, message in _task_faults(env, mains, sides)]
        findings += [Finding(env_id, message) for message in _space_faults(env, space)]
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything, which is the finding
        findings.append(Finding(env_id, f"its tasks cannot be listed: {type(error).__name__}: {error}"))
    return findings


def _environment_faults(env: ControlEnvironment) -> Iterator[str]:
    if not env.id.strip():
        yield "its id is empty"
    if not env.display_name.strip():
        yield "its display name is empty"
    if not env_agent_user(env).strip():
        yield "its agent user is empty"
    try:
        docs = env.docs(None)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything, which is the finding
        yield f"its docs cannot be read: {type(error).__name__}: {error}"
    else:
        if not docs.description.strip():
            yield "its description is empty"
        if not docs.short_description.strip():
            yield "its short description is empty"
    try:
        env_args_model(env)
    except TypeError as error:
        yield str(error)
    if isinstance(env, DockerEnvironment) and not env.compose_paths:
        yield "it has no compose file"
    if isinstance(env, DockerEnvironment):
        yield from (
            f"compose file {path} is missing" for path in env.compose_paths.values() if not path.is_file()
        )
    simulator = env_internet_simulator(env)
    if simulator is not None:
        yield from _simulator_faults(simulator)


def _simulator_faults(config: InternetSimulatorConfig) -> Iterator[str]:
    try:
        built_in, custom = split_upstream_proxy_entries(config.upstream_proxies)
    except ValueError as error:
        yield str(error)
        return
    yield from (
        f"upstream {proxy.host!r} is not a host name" for proxy in custom if not is_host_name(proxy.host)
    )
    upstreams = {proxy.host for proxy in custom} | {BUILT_IN_UPSTREAMS[name][0] for name in built_in}
    overlap = sorted(upstreams & set(config.personas))
    yield from (f"{host} is both a persona and an upstream" for host in overlap)


def _task_faults(
    env: ControlEnvironment, mains: Mapping[str, MainTask], sides: Mapping[str, SideTask]
) -> Iterator[tuple[str, str]]:
    for tasks in (mains, sides):
        if isinstance(tasks, LazyTaskMap):
            for task_id, error in tasks.load_errors.items():
                yield task_id, f"does not load: {type(error).__name__}: {error}"
        for key, task in tasks.items():
            if key != task.id:
                yield key, f"is listed as '{key}' but its id is '{task.id}'"
            if task.environment != env.id:
                yield key, f"says it belongs to '{task.environment}', not '{env.id}'"
            try:
                sample_files([task])
            except ValidationError as error:
                yield key, str(error)
    for key, side in sides.items():
        named = {*(side.compatible_main_tasks or ()), *side.incompatible_main_tasks}
        if unknown := sorted(named - set(mains)):
            yield key, f"names main tasks that do not exist: {', '.join(unknown)}"
    if isinstance(env, DockerEnvironment):
        for key, main in mains.items():
            if main.codebase_name not in env.compose_paths:
                yield key, f"its codebase '{main.codebase_name}' has no compose file"


def _space_faults(env: ControlEnvironment, space: TaskSpace) -> Iterator[str]:
    if not space.mains():
        yield "it has no main tasks"
    env_tools, env_private = env_tool_specs(env), env_private_tool_specs(env)
    seen: set[str] = set()
    for combination in space:
        declared = order_tools(
            env=env_tools,
            mains=[tool for task in combination.mains for tool in task.tools],
            env_private=env_private,
            mains_private=[tool for task in combination.mains for tool in task.private_tools],
            sides_private=[tool for task in combination.sides for tool in task.private_tools],
        )
        for problem in tool_problems(declared):
            if problem not in seen:
                seen.add(problem)
                yield problem
