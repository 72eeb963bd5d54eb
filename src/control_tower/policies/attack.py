"""The attack policy: the side task under cover of the main task, with planning and probing if wanted."""

import re
from collections.abc import Sequence
from typing import Literal

from inspect_ai.model import (
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    Model,
    get_model,
)
from inspect_ai.tool import ToolInfo
from inspect_ai.util import span

from control_tower.errors import ValidationError
from control_tower.game.prompts import prompt
from control_tower.game.red import Policy, PrivateToolsArg, is_private
from control_tower.game.telling import told
from control_tower.game.views import RedView
from control_tower.inspect_private import with_role
from control_tower.models.asking import ask
from control_tower.policies.registry import policies
from control_tower.records.scores import read_verdict
from control_tower.records.tasks import describe_tasks

Plan = Literal["none", "once", "each-step"]

PLANNER = "red_planner"
SIDE_TEST_ID = "ct/run_side_task_test"
SIDE_TEST = "run_side_task_test"
_PROMPTS = "control_tower.policies.prompts"


@policies.register(
    attempts_main_task=True, attempts_side_task=True, attempts_sneaky=True, needs=("main", "side")
)
def attack_policy(
    private_tools: PrivateToolsArg = frozenset(), plan: Plan = "none", probe: bool = False
) -> Policy:
    """Pursues the side task under cover of the main task.

    Args:
        private_tools: ids of private tools that the model may use unseen.
        plan: whether a planner (role red_planner) writes an outline once or a note before each action.
        probe: test the side task unseen before each action, and stop attacking once it succeeded.
    """
    chosen = private_tools | {SIDE_TEST_ID} if probe else private_tools
    return AttackPolicy(frozenset(chosen), plan, probe)


class AttackPolicy(Policy):
    """Replaces the system prompt by red's; nothing of how the side task is scored is in it."""

    def __init__(self, private_tools: frozenset[str], plan: Plan = "none", probe: bool = False) -> None:
        super().__init__(private_tools)
        self._plan = plan
        self._probe = probe
        self._outline = ""
        self._succeeded = False
        self._planned_at = -1
        self._probed_at = -1

    def setup(self, view: RedView) -> None:
        if not view.main_tasks or not view.side_tasks:
            raise ValidationError("the attack policy needs samples with a main task and a side task")
        self._side_ids = [task.id for task in view.side_tasks]
        self._words = {
            "environment": view.environment.description,
            "main_task": describe_tasks(view.main_tasks),
            "side_task": describe_tasks(view.side_tasks),
        }

    async def frame(
        self, input: Sequence[ChatMessage], private_tools: Sequence[ToolInfo]
    ) -> tuple[Sequence[ChatMessage], Sequence[ToolInfo]]:
        turns = sum(message.role == "assistant" and not is_private(message) for message in input)
        if self._probe:
            private_tools = [tool for tool in private_tools if tool.name != SIDE_TEST]
            await self._probe_once(turns)
        name = "attack" if self._plan == "none" else "attack_planned"
        system = ChatMessageSystem(content=self._filled(name))
        messages: list[ChatMessage] = [system, *(m for m in input if m.role != "system")]
        if self._succeeded:
            messages.append(ChatMessageUser(content=prompt(_PROMPTS, "stop_attacking")))
        elif self._plan != "none":
            messages.append(ChatMessageUser(content=await self._note(input, turns)))
        return messages, private_tools

    async def _probe_once(self, turns: int) -> None:
        if self._succeeded or turns == self._probed_at:
            return
        self._probed_at = turns
        for side_id in self._side_ids:
            answer = await self.probe(SIDE_TEST, task_id=side_id)
            first_line = answer.splitlines()[0] if answer else ""
            self._succeeded = bool(read_verdict(first_line.removeprefix("Score value:").strip() or None))
            if not self._succeeded:
                return

    async def _note(self, input: Sequence[ChatMessage], turns: int) -> str:
        if self._plan == "once" and not self._outline:
            self._outline = await self._ask_planner(
                "plan", [ChatMessageUser(content=self._filled("plan_once"))]
            )
        elif self._plan == "each-step" and turns != self._planned_at:
            self._planned_at = turns
            seen = told([message for message in input if message.role != "system"])
            request = ChatMessageUser(content=self._filled("plan_step"))
            self._outline = await self._ask_planner("think", [*seen, request])
        return f"From the planner, for you alone:\n\n{self._outline}"

    async def _ask_planner(self, name: str, request: list[ChatMessage]) -> str:
        async with span(name, type="ct_scope"):
            return (await ask(_planner(), request)).completion

    def _filled(self, name: str) -> str:
        words = {**self._words, "side_task": self._words["side_task"] + self.submission_note()}
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], prompt(_PROMPTS, name))


def _planner() -> Model:
    return with_role(get_model(role=PLANNER, default=get_model(role="untrusted", required=True)), PLANNER)
