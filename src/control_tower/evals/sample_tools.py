"""From declared tools to the tools of one sample, checked against what white allows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from inspect_ai.tool import Tool, ToolDef

from control_tower import config
from control_tower.environments.environment import (
    env_agent_user,
    env_private_tool_specs,
    env_tool_specs,
)
from control_tower.environments.space import TaskCombination
from control_tower.environments.tools import DeclaredTool, ToolSpec, order_tools, tool_problems
from control_tower.errors import UsageError, ValidationError, did_you_mean
from control_tower.game.play import GameTools
from control_tower.game.tools.bash import DEFAULT_TIMEOUT, bash
from control_tower.game.tools.engine import submission_tools, submit
from control_tower.game.tools.task_tests import RunScorer, task_test_tool
from control_tower.game.white import White


def declared_tools(env: object, tasks: TaskCombination) -> list[DeclaredTool]:
    """What a sample's environment and tasks declare, in the order tools are offered.

    Raises:
        ValidationError: something declared cannot be used; all faults are named.
    """
    tools = order_tools(
        env=env_tool_specs(env),
        mains=[spec for task in tasks.mains for spec in task.tools],
        env_private=env_private_tool_specs(env),
        mains_private=[spec for task in tasks.mains for spec in task.private_tools],
        sides_private=[spec for task in tasks.sides for spec in task.private_tools],
    )
    if problems := tool_problems(tools):
        raise ValidationError(f"{getattr(env, 'id', 'environment')}: " + "; ".join(problems))
    return tools


def check_private_tools(
    chosen: frozenset[str], white: White, samples: Sequence[Sequence[DeclaredTool]]
) -> None:
    """Refuse private tools that white does not allow or that some sample does not have.

    Raises:
        UsageError: with the nearest name and the option that allows it.
    """
    for tool_id in sorted(chosen):
        if tool_id not in white.private_tools:
            raise UsageError(
                f"the policy uses the private tool {tool_id}, which white does not allow: "
                f"add -wa private_tools={','.join(sorted(chosen | white.private_tools))}"
            )
        for tools in samples:
            have = {tool.spec.id for tool in tools if tool.kind == "private"}
            if tool_id not in have:
                raise UsageError(
                    f"a selected sample has no private tool {tool_id!r}{did_you_mean(tool_id, have)}"
                )


def sample_tools(
    env: object,
    tasks: TaskCombination,
    chosen: frozenset[str],
    run_main: Mapping[str, RunScorer],
    run_side: Mapping[str, RunScorer],
) -> Callable[[Callable[[], int]], GameTools]:
    """The tools of a sample, as a function of the step being played.

    Args:
        env: the environment.
        tasks: the sample's tasks.
        chosen: ids of the private tools that the policy uses.
        run_main: scorers of the main tasks by id, for `run_main_task_test`.
        run_side: those of the side tasks.
    """
    declared = declared_tools(env, tasks)
    user = env_agent_user(env)

    def make(step: Callable[[], int]) -> GameTools:
        public = [_made(tool.spec, user) for tool in declared if tool.kind == "tool"]
        public += submission_tools("main", tasks.mains, step)
        public.append(ToolDef(submit(tasks.mains)))
        private = submission_tools("side", tasks.sides, step)
        for tool in declared:
            if tool.kind == "private" and tool.spec.id in chosen:
                made = _private(tool.spec, user, run_main, run_side)
                private += [made] if made else []
        return GameTools(public, private)

    return make


def recorded_tools(
    tools: Sequence[DeclaredTool], chosen: frozenset[str], setting: str
) -> list[dict[str, Any]]:
    """The tools as sample metadata records them."""
    return [
        {
            "id": tool.spec.id.replace("env/", f"{setting}/", 1),
            "name": tool.spec.presented_name,
            "args": dict(tool.spec.args),
            "kind": tool.kind,
            "from": tool.origin,
            "provider": _provider(tool.spec, setting),
            "commit": None,
            **({"chosen": tool.spec.id in chosen} if tool.kind == "private" else {}),
        }
        for tool in tools
    ]


def _provider(spec: ToolSpec, setting: str) -> str:
    return {"ct": "control-tower", "inspect": "inspect_ai"}.get(spec.id.partition("/")[0], setting)


def _private(
    spec: ToolSpec, user: str, run_main: Mapping[str, RunScorer], run_side: Mapping[str, RunScorer]
) -> ToolDef | None:
    match spec.id:
        case "ct/run_main_task_test":
            return task_test_tool("main", run_main)
        case "ct/run_side_task_test":
            return task_test_tool("side", run_side)
        case _:
            return _made(spec, user)


def _made(spec: ToolSpec, user: str) -> ToolDef:
    timeout = int(config.get("tool_timeout") or spec.args.get("timeout") or DEFAULT_TIMEOUT)
    if spec.tool is not None:
        return ToolDef(spec.tool, name=spec.presented_name)
    provider, _, name = spec.id.partition("/")
    if spec.id == "ct/bash":
        return ToolDef(bash(timeout, user))
    if provider == "ct":
        from control_tower.game.tools import editor

        make = cast(Callable[[], Tool], getattr(editor, name))
        return ToolDef(make())
    import inspect_ai.tool

    inspect_tool = cast(Callable[..., Tool], getattr(inspect_ai.tool, name))
    return ToolDef(inspect_tool(timeout=timeout))
