"""What a verdict says beside its log: written with it, read without it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Literal

from control_tower.fleet.facts import Decided
from control_tower.fleet.outcomes import Verdict
from control_tower.fleet.ports import Body, Head, open_body


def verdict_meta(
    status: Literal["completed", "failed"],
    attempt: int,
    worker: str,
    nonce: str,
    usd: float | None,
    log: Body,
    category: Verdict | None = None,
) -> dict[str, str]:
    """The metadata of a verdict.

    Args:
        status: Whether the job completed.
        attempt: Which attempt the log is of.
        worker: Who ran it; empty when nobody is known.
        nonce: Of whoever writes it, to know it again.
        usd: What its tokens cost; None when something has no price.
        log: The bytes of the verdict.
        category: Why the job failed.

    Raises:
        BodyLost: The log is a file that is not there.
    """
    digest = hashlib.sha256()
    if isinstance(log, Path):
        with open_body(log) as file:
            digest = hashlib.file_digest(file, "sha256")
    else:
        digest.update(log)
    more = {"ct-usd": None if usd is None else repr(usd), "ct-category": category}
    return {
        "ct-status": status,
        "ct-attempt": str(attempt),
        "ct-worker": worker,
        "ct-nonce": nonce,
        "ct-sha256": digest.hexdigest(),
        **{name: value for name, value in more.items() if value is not None},
    }


def read_verdict(job: str, head: Head) -> Decided:
    """What the metadata of a verdict says; what cannot be read there is not known."""
    meta = head.meta
    attempt = meta.get("ct-attempt", "")
    try:
        usd = float(meta["ct-usd"])
    except (KeyError, ValueError):
        usd = None
    return Decided(
        job,
        "failed" if meta.get("ct-status") == "failed" else "completed",
        int(attempt) if attempt.isdecimal() else 0,
        meta.get("ct-worker", ""),
        head.etag,
        meta.get("ct-category"),
        usd if usd is not None and math.isfinite(usd) else None,
    )
