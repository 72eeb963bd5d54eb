"""A look at the whole store: what it says of all jobs that was not known before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from control_tower.fleet.documents import Ending
from control_tower.fleet.facts import Decided, Swept
from control_tower.fleet.outside import Outside
from control_tower.fleet.verdicts import read_verdict
from control_tower.fleet.wire import Unreadable


class Sweeper:
    """Looks at the store of one fleet again and again, and says only what is new."""

    def __init__(self, outside: Outside, alarm: Callable[[str], None]) -> None:
        """Does nothing yet.

        Args:
            outside: The fleet.
            alarm: Told of objects that cannot be read.
        """
        self._outside = outside
        self._alarm = alarm
        self._known: set[str] = set()

    async def sweep(self) -> Swept:
        """What is new since the last call.

        Raises:
            Unreachable: The store or a queue does not answer.
        """
        outside, store, keys = self._outside, self._outside.store, self._outside.keys
        visible, safe = (await outside.work.depth()).visible, (await outside.safe.depth()).visible
        listed = [await store.list(prefix) for prefix in (keys.claims, keys.attempts, keys.verdicts)]
        new = [[one for one in some if f"{one.key} {one.etag}" not in self._known] for some in listed]
        claims = [found for one in new[0] if (found := keys.attempt_of(one.key))]
        endings: list[Ending] = []
        verdicts: list[Decided] = []

        async def ending(key: str) -> None:
            if found := await self.ending(key):
                endings.append(found)

        async def verdict(job: str) -> None:
            head = await outside.surely(lambda: store.head(keys.verdict(job)))
            if head:
                verdicts.append(read_verdict(job, head))

        calls = [partial(ending, one.key) for one in new[1] if one.key.endswith(".json")]
        await outside.together(
            [*calls, *(partial(verdict, job) for one in new[2] if (job := keys.job_of(one.key)))]
        )
        self._known.update(f"{one.key} {one.etag}" for some in new for one in some)
        return Swept(claims, endings, verdicts, visible, safe)

    async def ending(self, key: str) -> Ending | None:
        """How an attempt ended; None where that is not there, or not readable."""
        found = await self._outside.surely(lambda: self._outside.store.get(key))
        try:
            ending = Ending.read(found.body) if found else None
        except Unreadable as error:
            self._alarm(f"{key}: {error}")
            return None
        named = ending and self._outside.keys.outcome(ending.job, ending.n) == key
        return ending if named else None
