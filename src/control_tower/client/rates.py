"""What models cost, as the viewer says it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pydantic

from control_tower.client.session import open_viewer, run
from control_tower.errors import OperationError
from control_tower.models.rates import RateRow, RateTable


@lru_cache(maxsize=1)
def viewer_rates() -> RateTable:
    """The viewer's rate table, read once.

    Raises:
        OperationError: The viewer cannot be reached, has no prices, or says what is no rate table.
        ExpectedError: It refuses it.
    """
    return run(_read())


async def _read() -> RateTable:
    rows: list[RateRow] = []
    page, size = 1, None
    async with open_viewer() as viewer:
        while True:
            params: dict[str, Any] = {"page": page if size else None, "page_size": size}
            told = (await viewer.call("GET", "/api/pricing", params=params)).json()
            try:
                rows += [RateRow.model_validate(item) for item in told["items"]]
            except pydantic.ValidationError as error:
                raise OperationError(f"{viewer.url}: its prices are no rate table: {error}") from None
            size, page = told["page_size"], page + 1
            if not told["items"] or len(rows) >= told["total_count"]:
                break
        if not rows:
            raise OperationError(f"{viewer.url}: has no prices; set CONTROL_TOWER_PRICING=file")
    return RateTable(rows=tuple(rows))
