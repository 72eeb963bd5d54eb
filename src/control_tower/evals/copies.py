"""Copies of a log that say which log they were made from."""

from __future__ import annotations

from pathlib import Path

from control_tower.errors import ValidationError
from control_tower.logs.archive import EvalArchive
from control_tower.logs.json_text import JsonObject, child


def is_copy_of(there: JsonObject, header: JsonObject, source: Path) -> bool:
    """Whether a log is a copy of a log, or of what that was copied from.

    Args:
        there: the header of the possible copy.
        header: the header of the log.
        source: the log's file, of whose name a copy keeps a note.
    """
    derived = child(child(header, "eval"), "metadata").get("derived_from") or source.name
    same = child(child(there, "eval"), "metadata").get("derived_from") == derived
    return same and child(there, "eval").get("eval_id") == child(header, "eval").get("eval_id")


def check_target(target: Path, header: JsonObject, source: Path) -> None:
    """Refuse to overwrite what is no copy of the log.

    Args:
        target: where a copy is to go; nothing need be there.
        header: the header of the log.
        source: its file.

    Raises:
        ValidationError: something else is there.
    """
    if not target.exists():
        return
    try:
        with EvalArchive.open(target) as archive:
            if is_copy_of(archive.header(), header, source):
                return
    except ValidationError:
        pass
    raise ValidationError(
        f"{target}: is there already and is no copy of {source.name}; give another --output"
    )
