"""Versions of the tables, and how rows of an older one become today's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from control_tower.agent_runs.store.interface import Row, Table
from control_tower.errors import StateError

Rewrite = Callable[[Row], Row]
"""A row as the next version keeps it; of a row that is so already, the same. The id stays."""


@dataclass(frozen=True)
class Migration:
    """What takes rows to a version; tables, columns and indexes that are new need nothing here."""

    version: int
    """The one it leads to."""
    rewrites: Mapping[str, Rewrite]
    """By table."""


@dataclass(frozen=True)
class Schema:
    """The tables as they are now."""

    version: int
    tables: Sequence[Table]
    migrations: Sequence[Migration] = ()
    """In order; versions that need none are left out."""


@dataclass(frozen=True)
class Progress:
    """How far a store is; kept in it."""

    version: int
    table: str | None = None
    """The one that is being rewritten for the next version, None before the first."""
    after: str = ""
    """The id of the row that was rewritten last."""


class Rewriting(Protocol):
    """What a store does for `migrate`."""

    async def progress(self) -> Progress:
        """How far it is, also by what other processes do at the same time."""
        ...

    async def rewrite(self, now: Progress, table: Table, rewrite: Rewrite) -> str | None:
        """Rewrites the next rows in order of their ids.

        Returns:
            The id of the last of them; None when there are no more.
        """
        ...

    async def advance(self, now: Progress, then: Progress) -> None:
        """Notes how far it is, if that is still `now`."""
        ...


async def migrate(store: Rewriting, schema: Schema) -> None:
    """Takes the rows of a store, whose tables are today's already, to today's version.

    A migration that was interrupted goes on where it was; several processes may do it at once.
    """
    while (now := await store.progress()).version < schema.version:
        step = next((each for each in schema.migrations if each.version > now.version), None)
        if step is None:
            await store.advance(now, Progress(schema.version))
            continue
        names = sorted(step.rewrites)
        name = now.table or (names[0] if names else None)
        if name is None:
            await store.advance(now, Progress(step.version))
            continue
        table = next(table for table in schema.tables if table.name == name)
        last = await store.rewrite(now, table, step.rewrites[name])
        if last is not None:
            then = Progress(now.version, name, last)
        else:
            later = [other for other in names if other > name]
            then = Progress(now.version, later[0]) if later else Progress(step.version)
        await store.advance(now, then)


def cannot_rewrite(place: str, table: Table, row: Row) -> StateError:
    """The error for a row whose next version another row stands in the way of."""
    return StateError(f"{place}: {table.name} {row.id!r} cannot be migrated: its new values are taken")


def refuse_newer(place: str, found: int, schema: Schema) -> None:
    """Says that a store was written by a newer version, if it was.

    Raises:
        StateError: It was.
    """
    if found > schema.version:
        raise StateError(
            f"{place}: was written by a newer Control Tower (schema {found}, this one knows up to"
            f" {schema.version}); update control-tower"
        )
