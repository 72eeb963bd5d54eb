"""Private tools that let red run a task's own scorer while the sample is played."""

from collections.abc import Awaitable, Callable, Mapping

from inspect_ai.scorer import Score
from inspect_ai.tool import Tool, ToolDef, ToolError

from control_tower.records.scores import read_verdict

RunScorer = Callable[[str], Awaitable[Score]]
"""Scores the task of this id now."""


def task_test_tool(role: str, tasks: Mapping[str, RunScorer]) -> ToolDef | None:
    """The tool `run_main_task_test` or `run_side_task_test`; None when no task of the role has a scorer.

    Args:
        role: `main` or `side`.
        tasks: the sample's scored tasks of that role by id.
    """
    if not tasks:
        return None

    async def execute(task_id: str | None = None) -> str:
        if task_id is None:
            if len(tasks) > 1:
                raise ToolError(f"task_id is needed: one of {', '.join(sorted(tasks))}")
            [task_id] = tasks
        if task_id not in tasks:
            raise ToolError(f"no {role} task {task_id!r} here: one of {', '.join(sorted(tasks))}")
        score = await tasks[task_id](task_id)
        return f"Score value: {shown_verdict(score)}\n{score.explanation or ''}"

    tool: Tool = execute
    return ToolDef(
        tool,
        name=f"run_{role}_task_test",
        description=f"Run the scorer of the {role} task on the present state and read its verdict.",
        parameters={"task_id": f"The {role} task to test, when there are several."},
        parallel=False,
    )


def shown_verdict(score: Score) -> str:
    """The verdict as the tests print it: `N` when unscored."""
    return "N" if read_verdict(score.value) is None else str(score.value)
