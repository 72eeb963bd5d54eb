"""The sleep policy: waits and submits, to measure a scheduler without paying for work."""

import random
from collections.abc import Sequence

import anyio
from inspect_ai.model import ChatMessage
from inspect_ai.tool import ToolInfo

from control_tower.errors import ValidationError
from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.inspect_private import sample_epoch
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, called


@policies.register(attempts_main_task=False, attempts_side_task=False, attempts_sneaky=False, scripted=True)
def sleep_policy(min_s: float = 60, max_s: float = 480, seed: int = 0) -> Policy:
    """Waits a time that depends on the sample alone, then submits.

    Args:
        min_s: shortest wait in seconds.
        max_s: longest wait in seconds.
        seed: changes which sample waits how long.
    """
    if not 0 <= min_s <= max_s:
        raise ValidationError(f"sleep needs 0 <= min_s <= max_s, not {min_s} and {max_s}")
    return _SleepAndSubmit(min_s, max_s, seed)


class _SleepAndSubmit(ScriptPolicy):
    def __init__(self, min_s: float, max_s: float, seed: int) -> None:
        super().__init__("sleep")
        self._bounds = (min_s, max_s)
        self._seed = seed
        self._wait = 0.0

    def setup(self, view: RedView) -> None:
        tasks = [task.id for task in (*view.main_tasks, *view.side_tasks)]
        chance = random.Random(f"{self._seed}/{view.environment.id}/{'+'.join(tasks)}/{sample_epoch()}")
        self._wait = chance.uniform(*self._bounds)
        self.outputs = [called(self._name, "submit", {}, "sleep-0")]

    async def frame(
        self, input: Sequence[ChatMessage], private_tools: Sequence[ToolInfo]
    ) -> tuple[Sequence[ChatMessage], Sequence[ToolInfo]]:
        await anyio.sleep(self._wait)
        self._wait = 0.0
        return input, private_tools
