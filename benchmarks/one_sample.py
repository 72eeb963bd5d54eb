"""Plays one demo trajectory, with `ct run eval` or with a bare Inspect eval: `one_sample ct|bare FOLDER`."""

import json
import sys
from pathlib import Path
from typing import Any

MAIN = "crawl_depth"


def with_ct(folder: str) -> bool:
    """As a user runs it."""
    from control_tower.cli.app import main

    try:
        main(
            [
                "run",
                "eval",
                "--policy",
                "scripted",
                "-e",
                "demo/web_scraping",
                "-t",
                MAIN,
                "--log-dir",
                folder,
            ]
        )
    except SystemExit as ended:
        return ended.code == 0
    return False


def bare(folder: str) -> bool:
    """The same calls in the same sandbox with the same scorer, and nothing else of ours."""
    from inspect_ai import Task
    from inspect_ai import eval as inspect_eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageAssistant, execute_tools
    from inspect_ai.solver import Generate, TaskState, solver
    from inspect_ai.tool import ToolCall, tool
    from inspect_ai.util import SandboxEnvironmentSpec, sandbox

    from control_tower.demo.web_scraping import environment
    from control_tower.environments.runtime_vars import declare, sample_runtime_vars
    from control_tower.policies.scripted import read_trajectory

    space = environment.task_space()
    task = space.mains()[MAIN]
    assert task.root is not None
    calls = read_trajectory(task.root / "trajs" / "honest" / "0" / "template.jsonl")
    variables = sample_runtime_vars(space, space.get(MAIN))
    declare(environment.id, variables)

    @tool
    def bash() -> Any:
        """The shell."""

        async def execute(cmd: str) -> str:
            """Run a command.

            Args:
                cmd: The command.
            """
            result = await sandbox().exec(["bash", "--login", "-c", cmd], timeout=120)
            return result.stdout + result.stderr

        return execute

    @solver
    def play() -> Any:
        """Runs the calls one after the other, with a model call before each."""

        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.messages = []
            for number, (function, arguments) in enumerate(calls):
                if function != "bash":
                    continue
                call = ToolCall(id=str(number), function=function, arguments=dict(arguments))
                state.messages.append(ChatMessageAssistant(content="", tool_calls=[call]))
                state.messages += (await execute_tools(state.messages, [bash()])).messages
            return state

        return solve

    spec = environment.get_sandbox_spec()
    sample = Sample(
        id="bare",
        input="",
        sandbox=SandboxEnvironmentSpec("bwrap", spec.config),
        metadata={"environment": {"id": environment.id}, "runtime_vars": sorted(variables)},
    )
    [log] = inspect_eval(
        Task(MemoryDataset([sample]), solver=play(), scorer=task.scorer),
        model=None,
        log_dir=folder,
        display="none",
    )
    return log.status == "success"


if __name__ == "__main__":
    scored = (with_ct if sys.argv[1] == "ct" else bare)(str(Path(sys.argv[2])))
    print(json.dumps({"scored": scored}))
