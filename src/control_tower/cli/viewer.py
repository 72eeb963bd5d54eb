"""`ct viewer`: the server of kept runs, and what its operator needs."""

import click

from control_tower.cli.group import Group


@click.group(
    cls=Group,
    lazy={
        "serve": ("control_tower.cli.viewer_serve:serve", "Serve the viewer."),
        "user": ("control_tower.cli.viewer_users:user", "Say who may use this viewer."),
        "token": ("control_tower.cli.viewer_users:token", "Make and revoke tokens of its users."),
        "gc": ("control_tower.cli.viewer_upkeep:gc", "Remove what nothing refers to."),
        "verify": ("control_tower.cli.viewer_upkeep:verify", "Compare runs with their logs."),
        "check": ("control_tower.cli.viewer_upkeep:check", "See whether all is set up well."),
        "backup": ("control_tower.cli.viewer_store:backup", "Write down all that the viewer keeps."),
        "restore": ("control_tower.cli.viewer_store:restore", "Fill a new viewer from a backup."),
        "migrate": ("control_tower.cli.viewer_store:migrate", "Take the store to this version's schema."),
    },
)
def viewer() -> None:
    """Serve kept runs to a browser and to other machines."""
