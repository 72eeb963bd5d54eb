"""Taking a fleet down: its workers, queues, secrets and scratch, and its store only when asked to."""

from __future__ import annotations

import shutil

from control_tower.errors import OperationError
from control_tower.fleet.place import LocalPlace
from control_tower.fleet.ports import Provider, Secrets


async def tear_down(
    place: LocalPlace, provider: Provider, secrets: Secrets, *, delete: bool = False
) -> list[str]:
    """Ends a fleet's workers and removes what only they needed; what was removed before is no error.

    Args:
        place: Where the fleet is; nobody is its controller.
        provider: Its machines.
        secrets: Its secrets.
        delete: Remove the store, too, and with it all results.

    Returns:
        What was removed, a text each.

    Raises:
        OperationError: A worker still lives, or something cannot be removed.
    """
    living = [one.id for one in await provider.list(place.fleet) if not one.gone]
    if living:
        await provider.terminate(living)
        left = [one.id for one in await provider.list(place.fleet) if not one.gone]
        if left:
            raise OperationError(f"{', '.join(left)} still live though they were ended; try again")
    removed = [f"worker {id}" for id in living]
    removed += ["secrets"] if place.secrets.exists() else []
    await secrets.revoke(place.fleet)
    removed += ["queues"] if place.queues.exists() else []
    removed += ["worker logs and scratch"] if place.workers.exists() else []
    store = place.root / place.fleet
    folders = [place.machine, *([store] if delete else [])]
    removed += ["results"] if delete and store.exists() else []
    for folder in folders:
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            raise OperationError(f"{error.filename or folder}: {error.strerror}") from error
    return removed
