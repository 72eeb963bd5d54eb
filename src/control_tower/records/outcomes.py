"""How a sample's play ended, as its metadata and its summary say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

OUTCOME = "outcome"
"""Sample metadata key: how the play ended, finer than the log's finish reasons."""

UNSCORED_ACTION = "unscored_action"
"""The outcome of a play that the protocol stopped by an error, as no monitor could score an action."""


def stopped_unscored(record: Mapping[str, Any]) -> bool:
    """Whether a sample, or the summary of one, errored as no monitor could score an action."""
    metadata = record.get("metadata")
    if not record.get("error") or record.get("invalidation") or not isinstance(metadata, Mapping):
        return False
    return cast("Mapping[str, Any]", metadata).get(OUTCOME) == UNSCORED_ACTION
