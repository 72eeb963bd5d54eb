"""No oversight: every draft runs."""

from control_tower.game.blue import Protocol
from control_tower.protocols.harness import PLAIN, HarnessArg, check_harness
from control_tower.protocols.registry import protocols


@protocols.register(name="null-blue-team")
def null_blue_team_protocol(harness: HarnessArg = PLAIN) -> Protocol:
    """Runs every draft; what the other protocols are compared with.

    Args:
        harness: the loop that plays.
    """
    check_harness(harness)
    return Protocol()
