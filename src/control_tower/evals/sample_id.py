"""The id of a sample: its environment and tasks, short enough for a label."""

import hashlib
from collections.abc import Iterable

LONGEST = 63
_HEAD = 54
_HASH = 8


def sample_id(env_id: str, main_ids: Iterable[str], side_ids: Iterable[str]) -> str:
    """`env:main[:side]`, the ids of a role sorted and joined with `+`, shortened to 63 characters.

    A shortened id ends in eight hex digits of the SHA-256 of the full one.
    """
    full = ":".join((env_id, "+".join(sorted(main_ids)), "+".join(sorted(side_ids)))).rstrip(":")
    if len(full) <= LONGEST:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:_HASH]
    return f"{full[:_HEAD].rstrip('-_.:~')}-{digest}"
