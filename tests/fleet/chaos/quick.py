"""A policy whose jobs take a moment: a command in the sandbox, which may be killed under way, then submit."""

import random

from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.inspect_private import sample_epoch
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, called

_STEP = "sleep {seconds:.2f}; echo done >> steps.txt"


@policies.register(attempts_side_task=True, scripted=True)
def quick(longest: float = 2.0) -> Policy:
    """Works for 0.1 seconds or up to `longest`, by chance but always the same for a sample."""
    return _Quick(longest)


class _Quick(ScriptPolicy):
    def __init__(self, longest: float) -> None:
        super().__init__("quick")
        self._longest = longest

    def setup(self, view: RedView) -> None:
        chance = random.Random(f"{len(view.side_tasks)}/{sample_epoch()}")
        step = _STEP.format(seconds=min(self._longest, 0.1 + chance.expovariate(2.0)))
        self.outputs = [
            called("quick", "bash", {"cmd": step}, "quick-0"),
            called("quick", "submit", {}, "quick-1"),
        ]
