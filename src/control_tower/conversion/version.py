"""Which format a log is in, by `eval_version` in its header and nothing else."""

from __future__ import annotations

import re
from enum import Enum

from control_tower.errors import ValidationError
from control_tower.logs.format import MAJOR
from control_tower.logs.json_text import JsonObject, child

CURRENT_VERSION = f"{MAJOR}.0"
"""What a converted log says."""


class Age(Enum):
    """How far behind a log is."""

    UNVERSIONED = "from before formats had versions"
    BELOW_3 = "of a format below 3.0"
    CURRENT = "current"


def age_of(name: str, header: JsonObject) -> Age:
    """The age of a log.

    Args:
        name: What messages call the log.
        header: Its header.

    Raises:
        ValidationError: The version is newer than this program, or no version at all.
    """
    version = child(child(header, "eval"), "metadata").get("eval_version")
    if version is None:
        return Age.UNVERSIONED
    text = "" if isinstance(version, bool) else str(version).strip()
    if version == "":
        return Age.BELOW_3
    leading = re.match(r"\d+(?=\.|$)", text, re.ASCII)
    if leading is None:
        raise ValidationError(f"{name}: its eval_version {version!r} is no version number")
    if int(leading[0]) > MAJOR:
        raise ValidationError(
            f"{name}: its format {version} is newer than this version of ct reads; install a newer one"
        )
    return Age.CURRENT if int(leading[0]) == MAJOR else Age.BELOW_3
