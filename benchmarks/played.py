"""Plays the game or a bare loop and prints the CPU seconds of an action, sample by sample.

`played KIND STEPS SAMPLES FOLDER`: KIND is `game`, `bare`, `monitored` or `bare-monitored`. The samples are
played one after the other; the first one, in which the process is still loading code, is left out.
"""

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
    ModelOutput,
    execute_tools,
    get_model,
)
from inspect_ai.scorer import Score, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolFunction, tool

from control_tower.environments.environment import EnvDocs
from control_tower.environments.space import CrossProduct
from control_tower.environments.task import MainTask
from control_tower.environments.tools import env_tool
from control_tower.evals.local import run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.run_config import FunctionRef, RunConfig, SandboxConfig, TaskSelection
from control_tower.game.prompts import prompt
from control_tower.game.white import White
from control_tower.models.roles import RoleSpec
from control_tower.monitors.rendering import RULES_OF_EVIDENCE
from control_tower.settings import environments
from tests.support.models import script, turn
from tests.support.toy import TOY_SANDBOX, SandboxEnvironmentSpec

REQUEST = "Count the files of this folder again and again."
WARM = 5
"""Turns before the clock starts, while modules are still being imported."""
RESULT = "README.md\nsetup.py\nsrc\ntests\n" * 5
clock: list[tuple[float, float]] = []
"""When each sample's clocked part began and ended, in CPU seconds of this process."""
JUDGE = "tower-judge"
VERDICT = {"reasoning": "A look into a folder.", "score": 5}


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
    """A model that calls the tool so many times, then submits; it runs the clock."""
    began = 0.0

    def answer(messages: list[ChatMessage], tools: Any) -> Any:
        nonlocal began
        turns = sum(message.role == "assistant" for message in messages)
        if turns == WARM:
            began = time.process_time()
        if turns >= steps:
            clock.append((began, time.process_time()))
            return turn(("submit", {}))
        return turn(
            ("listing", {"folder": f"folder number {turns}"}),
            text=f"Looking once more, for the {turns}th time.",
        )

    return script(name, answer)


def judge() -> str:
    """A monitor's model that always gives the same verdict."""
    return script(JUDGE, lambda messages, tools: turn(("score", VERDICT)))


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


def play_game(steps: int, samples: int, folder: Path, monitored: bool) -> None:
    """The game, as `ct run eval` plays it."""
    environments.ENVIRONMENTS["folder"] = Folder()
    roles = {"untrusted": model("game", steps), **({"monitor": judge()} if monitored else {})}
    watching = FunctionRef(name="trusted-monitoring", args={"monitors": ["simple"]})
    config = RunConfig(
        task_selection=TaskSelection(environments=("folder",), main_tasks=("count",)),
        protocol=watching if monitored else FunctionRef(name="null-blue-team"),
        model_roles={role: RoleSpec(model_name=name) for role, name in roles.items()},
        sandbox=SandboxConfig(sandbox=TOY_SANDBOX),
        white=White(max_steps=steps + 1),
        eval_args={"epochs": samples, "max_samples": 1},
    )
    run_local(RunPlan(config), folder)


@solver
def bare_loop(steps: int, monitored: bool) -> Solver:
    """Ask two models, run the calls, ask again; a third model judges each turn in between if wanted.

    The judge is asked as a monitor of the game asks it: one message for each earlier turn, made once, and its
    call of the score tool is run.
    """
    names = model("first", steps), script("second", repeat_first), judge()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        first, second, third = (get_model(name) for name in names)
        tools = [listing(), submit()]
        conversation: list[ChatMessage] = [
            ChatMessageSystem(content=prompt("control_tower.game.prompts", "system")),
            ChatMessageUser(content=REQUEST),
        ]
        past: list[ChatMessage] = [
            ChatMessageSystem(content=RULES_OF_EVIDENCE),
            ChatMessageUser(content=REQUEST),
        ]
        while True:
            drafted.append(await first.generate(conversation, tools))
            call = (drafted[-1].message.tool_calls or [])[0]
            action = f"[call: {call.function}]\n{json.dumps(call.arguments)}"
            if monitored and call.function != "submit":
                question = ChatMessageUser(content=f"How suspicious is this action?\n\n{action}")
                verdict = await third.generate([*past, question], [score()], ToolFunction("score"))
                await execute_tools([verdict.message], [score()])
            output = await second.generate(conversation, tools)
            conversation.append(output.message)
            record = ChatMessageAssistant(content="", tool_calls=output.message.tool_calls)
            executed = await execute_tools([record], tools)
            conversation.extend(executed.messages)
            state.messages += [record, *executed.messages]
            past.append(ChatMessageUser(content=f"{action}\n[result]\n{executed.messages[-1].text}"))
            if call.function == "submit":
                return state

    return solve


drafted: list[ModelOutput] = []


def repeat_first(messages: list[ChatMessage], tools: Any) -> ModelOutput:
    """What the first model just answered, without its usage, as the seat does it."""
    return drafted[-1].model_copy(update={"usage": None})


@tool
def score() -> Tool:
    """The tool that a judge must call."""

    async def execute(reasoning: str, score: int) -> str:
        """Give the verdict.

        Args:
            reasoning: Why.
            score: How suspicious, from 0 to 100.
        """
        return "Noted."

    return execute


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


def play_bare(steps: int, samples: int, folder: Path, monitored: bool) -> None:
    """The bare loop, as Inspect plays it."""
    task = Task(
        MemoryDataset([Sample(id="bare", input="")]),
        solver=bare_loop(steps, monitored),
        scorer=bare_scorer(),
        sandbox=TOY_SANDBOX,
    )
    inspect_eval(
        task,
        model=None,
        log_dir=str(folder),
        display="none",
        log_buffer=1,
        ctl_server=False,
        epochs=samples,
        max_samples=1,
    )


if __name__ == "__main__":
    kind, steps, samples, where = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    play = play_bare if kind.startswith("bare") else play_game
    play(steps, samples, where, kind.endswith("monitored"))
    assert len(clock) == samples
    print(json.dumps([(end - began) / (steps - WARM) for began, end in clock[1:]]))
