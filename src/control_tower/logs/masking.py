"""Taking secrets out of a log that is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from control_tower.logs.archive import EvalArchive
from control_tower.logs.json_text import BadJson, dumps, loads
from control_tower.logs.zip_writer import new_archive

_COLOURED = "traceback_ansi"


def mask_log(path: Path, mask: Callable[[bytes], bytes]) -> bool:
    """Writes a log anew without its secrets; one that has none stays as it is.

    Args:
        path: The log.
        mask: Returns data without secrets, and the same object where it has none.

    Returns:
        Whether it had any.

    Raises:
        DamagedArchive: The log is damaged.
        OperationError: It cannot be written; what was there is untouched.
    """
    with EvalArchive.open(path) as archive:
        members = archive.members
        held = {name for name in members.members if mask(data := members.read(name)) is not data}
        if held:
            with new_archive(path) as writer:
                for name in members.members:
                    if name in held:
                        writer.add(name, _masked(members.read(name), mask))
                    else:
                        writer.copy(members, name)
    return bool(held)


def _masked(data: bytes, mask: Callable[[bytes], bytes]) -> bytes:
    masked = mask(data)
    if _COLOURED.encode() not in masked:
        return masked
    # Colours and the ends of lines stand between the parts of a secret there.
    try:
        return dumps(_without_colours(loads(masked)))
    except BadJson:
        return masked


def _without_colours(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_colours(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        plain = {key: _without_colours(item) for key, item in cast("dict[str, Any]", value).items()}
        return {**plain, _COLOURED: plain.get("traceback") or ""} if plain.get(_COLOURED) else plain
    return value
