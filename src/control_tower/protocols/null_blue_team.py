"""No oversight: every draft runs."""

from control_tower.game.blue import Protocol
from control_tower.protocols.registry import protocols


@protocols.register(name="null-blue-team")
def null_blue_team_protocol() -> Protocol:
    """Runs every draft; what the other protocols are compared with."""
    return Protocol()
