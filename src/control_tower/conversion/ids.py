"""Ids of what a conversion makes anew: functions of the source, so converting again gives the same."""

from __future__ import annotations

import hashlib


def derived_id(*parts: object) -> str:
    """32 hex digits that stand for the parts."""
    return hashlib.sha256(":".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def rebuilt_log_id(eval_id: str) -> str:
    """The eval id of a log rebuilt from one without a version."""
    return derived_id("legacy-run", eval_id)


def rebuilt_sample_id(eval_id: str, sample_id: object, epoch: int) -> str:
    """The id of a sample in it."""
    return derived_id("eval3.0", eval_id, sample_id, epoch)


def merged_log_id(honest: str, attack: str) -> str:
    """The eval id of a control-eval log made of two runs."""
    return derived_id("control-eval", honest, attack)
