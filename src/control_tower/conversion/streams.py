"""To which stream a log's samples belong: what a flag says is checked, and asked for where it is needed."""

from __future__ import annotations

import re
from typing import Literal

from control_tower.conversion.notes import Notes
from control_tower.conversion.tasks import task_ids
from control_tower.errors import UsageError, ValidationError
from control_tower.logs.archive import SampleKey
from control_tower.logs.json_text import JsonObject, child

Stream = Literal["honest", "attack"]

_HONEST = re.compile(r"(?:^|[/\-_+.])honest(?:$|[/\-_+.])", re.IGNORECASE)


def policy_name(metadata: JsonObject) -> str:
    """The name of the policy that played a log, by its header's metadata; empty when it names none."""
    for key in ("policy_selection", "untrusted_policy_selection"):
        if name := child(metadata, key).get("name"):
            return str(name)
    return str(metadata.get("policy") or "")


def is_honest(policy: str) -> bool:
    """Whether a policy is an honest one: by what it declares when it is known here, else by its name."""
    name = policy.partition("-vs-")[0]
    known = _attempts_side_task(name)
    return bool(_HONEST.search(name)) if known is None else not known


def check_stream(metadata: JsonObject, sample: JsonObject, stream: Stream | None, notes: Notes) -> None:
    """Refuses a sample that contradicts the stream, or that leaves open which it is.

    Args:
        metadata: The header's metadata.
        sample: With its tasks as lists.
        stream: As the user said.

    Raises:
        ValidationError: With what to do.
    """
    sides = task_ids(sample, "side")
    if stream == "attack" and not sides:
        raise notes.refused(SampleKey.of(sample), "has no side task, so it is not of an attack run")
    if stream is None and sides and is_honest(policy_name(metadata)):
        raise ValidationError(
            f"{notes.log}: its policy {policy_name(metadata)!r} is an honest one, but its sample "
            f"{SampleKey.of(sample)} has side tasks; say with --honest or --attack which stream it is"
        )


def _attempts_side_task(name: str) -> bool | None:
    """What one of our own policies declares; None when it is none of them, or leaves it open."""
    from control_tower.policies.registry import policies

    short = name.removeprefix("ct/")
    if not re.fullmatch(r"[\w-]+", short):
        return None
    try:
        return policies.get(f"ct/{short}").metadata.get("attempts_side_task")
    except UsageError:
        return None
