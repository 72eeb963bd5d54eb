"""The tools an environment or a task gives: declared by id, checked before a run, in a fixed order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from inspect_ai.tool import Tool

ENV_TOOL_PREFIX = "env/"

TASK_TESTS = frozenset({"ct/run_main_task_test", "ct/run_side_task_test"})
"""Tools that run a task's scorer for red; never interaction tools."""

KNOWN_TOOLS: Mapping[str, frozenset[str]] = {
    **{
        f"ct/{name}": frozenset({"timeout"})
        for name in (
            "bash",
            "text_editor",
            "view",
            "replace_text",
            "insert_text",
            "delete_text",
            "create_file",
        )
    },
    **{name: frozenset[str]() for name in TASK_TESTS},
    **{f"inspect/{name}": frozenset({"timeout"}) for name in ("bash", "python", "text_editor")},
}
"""Tool ids that need no implementation from the author, with the arguments each allows."""


def _no_args() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class ToolSpec:
    """One declared tool.

    `id` is `ct/<name>`, `inspect/<name>`, or `env/<name>` for the author's own `tool`
    (make those with `env_tool`). `args` are fixed arguments; shipped tools take `timeout` in seconds.
    """

    id: str
    args: Mapping[str, Any] = field(default_factory=_no_args)
    tool: Tool | None = None

    @property
    def presented_name(self) -> str:
        """The name the agent sees."""
        return self.id.rsplit("/", 1)[-1]


def env_tool(tool: Tool) -> ToolSpec:
    """Declare a tool that the environment implements itself; its Inspect name becomes `env/<name>`."""
    from inspect_ai.tool import ToolDef

    return ToolSpec(id=f"{ENV_TOOL_PREFIX}{ToolDef(tool).name}", tool=tool)


ToolKind = Literal["tool", "private"]
ToolOrigin = Literal["env", "main_task", "side_task"]


@dataclass(frozen=True)
class DeclaredTool:
    """A tool with its place: for interaction (`tool`) or seen by red only (`private`), and who gave it."""

    spec: ToolSpec
    kind: ToolKind
    origin: ToolOrigin


def order_tools(
    *,
    env: Iterable[ToolSpec] = (),
    mains: Iterable[ToolSpec] = (),
    env_private: Iterable[ToolSpec] = (),
    mains_private: Iterable[ToolSpec] = (),
    sides_private: Iterable[ToolSpec] = (),
) -> list[DeclaredTool]:
    """All tools of a sample in the order they are offered."""
    groups: tuple[tuple[Iterable[ToolSpec], ToolKind, ToolOrigin], ...] = (
        (env, "tool", "env"),
        (mains, "tool", "main_task"),
        (env_private, "private", "env"),
        (mains_private, "private", "main_task"),
        (sides_private, "private", "side_task"),
    )
    return [DeclaredTool(spec, kind, origin) for specs, kind, origin in groups for spec in specs]


def tool_problems(tools: Sequence[DeclaredTool]) -> list[str]:
    """What is wrong with a sample's declared tools; empty when nothing is."""
    problems: list[str] = []
    for declared in tools:
        spec = declared.spec
        if spec.id.startswith(ENV_TOOL_PREFIX):
            if spec.tool is None:
                problems.append(f"tool '{spec.id}' has no implementation: declare it with env_tool(...)")
            continue
        allowed = KNOWN_TOOLS.get(spec.id)
        if allowed is None:
            problems.append(f"unknown tool '{spec.id}'; known: {', '.join(sorted(KNOWN_TOOLS))}, env/<name>")
            continue
        if unknown := sorted(set(spec.args) - allowed):
            problems.append(f"tool '{spec.id}' does not take {', '.join(unknown)}")
        if spec.id in TASK_TESTS and declared.kind == "tool":
            problems.append(f"'{spec.id}' tells the agent its score, so it can only be a private tool")
    names = Counter(declared.spec.presented_name for declared in tools)
    problems += [
        f"several tools are presented as '{name}'" for name, count in sorted(names.items()) if count > 1
    ]
    return problems
