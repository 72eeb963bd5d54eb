"""Plays the game or the bare loop once and prints the CPU seconds of an action: KIND STEPS FOLDER."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai import eval as inspect_eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    execute_tools,
    get_model,
)
from inspect_ai.scorer import Score, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, tool

from control_tower.environments.environment import EnvDocs
from control_tower.environments.space import CrossProduct
from control_tower.environments.task import MainTask
from control_tower.environments.tools import env_tool
from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import RunConfig, SandboxConfig, TaskSelection
from control_tower.game.prompts import prompt
from control_tower.game.white import White
from control_tower.models.roles import RoleSpec
from control_tower.settings import environments
from tests.support.models import script, turn
from tests.support.toy import TOY_SANDBOX, SandboxEnvironmentSpec

REQUEST = "Count the files of this folder again and again."
WARM = 5
"""Turns before the clock starts, while modules are still being imported."""
RESULT = "README.md\nsetup.py\nsrc\ntests\n" * 5
clock: dict[str, float] = {}


@tool
def listing() -> Tool:
    """Lists nothing real, so that the machine's own speed does not count."""

    async def execute(folder: str) -> str:
        """List a folder.

        Args:
            folder: The folder.
        """
        return RESULT

    return execute


def model(name: str, steps: int) -> str:
    """A model that calls the tool so many times, then submits."""

    def answer(messages: list[ChatMessage], tools: Any) -> Any:
        turns = sum(message.role == "assistant" for message in messages)
        if turns == WARM:
            clock.setdefault("start", time.process_time())
        if turns >= steps:
            clock["end"] = time.process_time()
            return turn(("submit", {}))
        return turn(
            ("listing", {"folder": f"folder number {turns}"}),
            text=f"Looking once more, for the {turns}th time.",
        )

    return script(name, answer)


class Folder:
    """An environment with the one tool."""

    id = "folder"
    display_name = "Folder"
    tools = (env_tool(listing()),)
    private_tools = ()

    def docs(self, args: Any = None) -> EnvDocs:
        """Its texts."""
        return EnvDocs(description="A folder.")

    def get_sandbox_spec(self, codebase_name: str = "default", args: Any = None) -> SandboxEnvironmentSpec:
        """A plain folder."""
        return SandboxEnvironmentSpec(TOY_SANDBOX)

    def task_space(self, args: Any = None) -> CrossProduct:
        """One main task."""
        return CrossProduct({"count": MainTask("count", "count", "folder", REQUEST, scorer=right)})


async def right(state: TaskState, target: Target) -> Score:
    """Everything is right."""
    return Score(value="C")


def play_game(steps: int, folder: Path) -> None:
    """The game, as `ct run eval` plays it."""
    environments.ENVIRONMENTS["folder"] = Folder()
    config = RunConfig(
        task_selection=TaskSelection(environments=("folder",), main_tasks=("count",)),
        model_roles={"untrusted": RoleSpec(model_name=model("game", steps))},
        sandbox=SandboxConfig(sandbox=TOY_SANDBOX),
        white=White(max_steps=steps + 1),
    )
    run_local(RunPlan(config), folder)


@solver
def bare_loop(steps: int) -> Solver:
    """Ask two models, run the calls, ask again."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        first, second = get_model(model("first", steps)), get_model(model("second", steps))
        tools = [listing(), submit()]
        conversation: list[ChatMessage] = [
            ChatMessageSystem(content=prompt("control_tower.game.prompts", "system")),
            ChatMessageUser(content=REQUEST),
        ]
        while True:
            await first.generate(conversation, tools)
            output = await second.generate(conversation, tools)
            conversation.append(output.message)
            record = ChatMessageAssistant(content="", tool_calls=output.message.tool_calls)
            executed = await execute_tools([record], tools)
            conversation.extend(executed.messages)
            state.messages += [record, *executed.messages]
            if any(call.function == "submit" for call in output.message.tool_calls or []):
                return state

    return solve


@tool
def submit() -> Tool:
    """Ends the loop."""

    async def execute() -> str:
        """Hand in."""
        return "Submitted."

    return execute


@scorer(metrics=[mean()])
def bare_scorer() -> Any:
    """Everything is right."""
    return right


def play_bare(steps: int, folder: Path) -> None:
    """The bare loop, as Inspect plays it."""
    task = Task(
        MemoryDataset([Sample(id="bare", input="")]),
        solver=bare_loop(steps),
        scorer=bare_scorer(),
        sandbox=TOY_SANDBOX,
    )
    inspect_eval(task, model=None, log_dir=str(folder), display="none", log_buffer=1, ctl_server=False)


if __name__ == "__main__":
    kind, count, where = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    (play_game if kind == "game" else play_bare)(count, where)
    print(json.dumps({"cpu_per_action": (clock["end"] - clock["start"]) / (count - WARM)}))
