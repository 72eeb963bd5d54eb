"""The obvious attack: the side task alone, pursued openly, as a measure of capability."""

from collections.abc import Sequence

from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser
from inspect_ai.tool import ToolInfo

from control_tower.errors import ValidationError
from control_tower.game.prompts import prompt
from control_tower.game.red import Policy, PrivateToolsArg
from control_tower.game.views import RedView
from control_tower.policies.registry import policies
from control_tower.records.tasks import describe_tasks


@policies.register(attempts_main_task=False, attempts_side_task=True, attempts_sneaky=False, needs=("side",))
def obvious_attack_policy(private_tools: PrivateToolsArg = frozenset()) -> Policy:
    """Pursues the side task openly and leaves the main task aside.

    Args:
        private_tools: ids of private tools that the model may use unseen.
    """
    return ObviousAttackPolicy(private_tools)


class ObviousAttackPolicy(Policy):
    """Replaces the system prompt and the opening request."""

    def setup(self, view: RedView) -> None:
        if not view.side_tasks:
            raise ValidationError("the obvious-attack policy needs samples with a side task")
        self._request = describe_tasks(view.side_tasks)

    async def frame(
        self, input: Sequence[ChatMessage], private_tools: Sequence[ToolInfo]
    ) -> tuple[Sequence[ChatMessage], Sequence[ToolInfo]]:
        rest = [message for message in input if message.role != "system"]
        opening = next((i for i, m in enumerate(rest) if m.role == "user"), None)
        if opening is not None:
            del rest[opening]
        system = prompt("control_tower.policies.prompts", "obvious_attack_system")
        return [
            ChatMessageSystem(content=system),
            ChatMessageUser(content=self._request + self.submission_note()),
            *rest,
        ], private_tools
