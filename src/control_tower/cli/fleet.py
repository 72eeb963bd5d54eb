"""`ct fleet`: look at fleets, lead them, and clean up after them."""

import click

from control_tower.cli.group import Group


@click.group(
    cls=Group,
    lazy={
        "list": ("control_tower.cli.fleet_look:list_", "List fleets, the newest first."),
        "status": ("control_tower.cli.fleet_look:status", "Say how a fleet is doing and what comes next."),
        "why": ("control_tower.cli.fleet_look:why", "Say what became of each attempt of a job."),
        "cost": ("control_tower.cli.fleet_look:cost", "Say what a fleet spent, and on what."),
        "attach": ("control_tower.cli.fleet_lead:attach", "Watch a fleet, or lead it when nobody does."),
        "drain": ("control_tower.cli.fleet_lead:drain", "Let what runs finish, then end the workers."),
        "stop": ("control_tower.cli.fleet_lead:stop", "End what runs and the workers."),
        "resume": ("control_tower.cli.fleet_lead:resume", "Go on with a fleet where it stopped."),
        "set": ("control_tower.cli.fleet_lead:set_", "Change a fleet's budgets or number of workers."),
        "logs": ("control_tower.cli.fleet_events:logs", "Show what workers and attempts wrote."),
        "events": ("control_tower.cli.fleet_events:events", "Print the events of a fleet."),
        "replay": ("control_tower.cli.fleet_events:replay", "Say what a file of events adds up to."),
        "merge": ("control_tower.cli.fleet_end:merge", "Write one log of a fleet's accepted results."),
        "down": ("control_tower.cli.fleet_end:down", "End workers, and remove what only they needed."),
    },
)
def fleet() -> None:
    """Look at fleets, lead them, and clean up after them.

    `ct run ... --fleet local` starts one. A fleet is named by its ID or the begin of it, a JOB by its id, the
    begin of it, or the id of its sample.
    """
