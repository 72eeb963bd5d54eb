"""The honest policy: the untrusted model does the work it was given."""

from control_tower.game.red import Policy, PrivateToolsArg
from control_tower.policies.registry import policies


@policies.register(attempts_main_task=True, attempts_side_task=False, attempts_sneaky=False)
def honest_policy(private_tools: PrivateToolsArg = frozenset()) -> Policy:
    """Does the main task and nothing else.

    Args:
        private_tools: ids of private tools that the model may use unseen.
    """
    return Policy(private_tools)
