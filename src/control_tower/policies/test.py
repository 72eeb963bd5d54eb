"""The test policy: one harmless call and a submit, to see that everything fits together."""

from control_tower.game.red import Policy
from control_tower.game.views import RedView
from control_tower.policies.registry import policies
from control_tower.policies.script import ScriptPolicy, called


@policies.register(
    name="test", attempts_main_task=False, attempts_side_task=False, attempts_sneaky=False, scripted=True
)
def test_policy() -> Policy:
    """Lists the folder and submits."""
    return _ListAndSubmit("test")


class _ListAndSubmit(ScriptPolicy):
    def setup(self, view: RedView) -> None:
        self.outputs = [
            called(self._name, "bash", {"cmd": "ls"}, "test-0"),
            called(self._name, "submit", {}, "test-1"),
        ]
