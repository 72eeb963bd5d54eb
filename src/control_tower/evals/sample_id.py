"""The id of a sample: its environment and tasks, short enough for a label."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

LONGEST = 63
_HEAD = 54
_HASH = 8


def sample_id(env_id: str, main_ids: Iterable[str], side_ids: Iterable[str]) -> str:
    """`env:main[:side]`, the ids of a role sorted and joined with `+`, shortened to 63 characters.

    A shortened id ends in eight hex digits of the SHA-256 of the full one.
    """
    return _shortened(":".join((env_id, "+".join(sorted(main_ids)), "+".join(sorted(side_ids)))).rstrip(":"))


def numbered(ids: Sequence[str]) -> list[str]:
    """Ids of which those that occur several times get `~1`, `~2`, ... in order."""
    total, seen = Counter(ids), Counter[str]()
    unique: list[str] = []
    for ident in ids:
        seen[ident] += 1
        unique.append(_shortened(f"{ident}~{seen[ident]}") if total[ident] > 1 else ident)
    return unique


def _shortened(full: str) -> str:
    if len(full) <= LONGEST:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:_HASH]
    return f"{full[:_HEAD].rstrip('-_.:~')}-{digest}"
