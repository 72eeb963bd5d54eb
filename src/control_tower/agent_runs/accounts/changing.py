"""Changes to a row that several processes may be changing at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from control_tower.agent_runs.store.interface import ColumnValue, Row, Store, Table
from control_tower.errors import OperationError

_ATTEMPTS = 50


async def change(store: Store, table: Table, row_id: str, edit: Callable[[Row], Row | None]) -> Row | None:
    """Changes a row as it is at that moment.

    Args:
        store: Where it is.
        table: Of which table.
        row_id: Which row.
        edit: Makes the new row of the present one, perhaps more than once; None leaves it as it is.

    Returns:
        The row afterwards; None when there is no such row, or `edit` left it.
    """
    for _ in range(_ATTEMPTS):
        row = (await store.get(table, [row_id])).get(row_id)
        edited = edit(row) if row else None
        if edited is None:
            return None
        if await store.replace(table, edited):
            return edited
    raise OperationError(f"{table.name}: others keep changing it; try again")


def edited(
    row: Row,
    columns: Mapping[str, ColumnValue] | None = None,
    listed: Mapping[str, Any] | None = None,
    document: Mapping[str, Any] | None = None,
) -> Row:
    """A row with some of its values set anew."""
    return replace(
        row,
        columns={**row.columns, **(columns or {})},
        listed={**row.listed, **(listed or {})},
        document={**row.document, **(document or {})},
    )
