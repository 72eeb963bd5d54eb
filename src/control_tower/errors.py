"""Errors that a user can act on: one line on stderr, an exit code, no traceback."""

import difflib
import re
from collections.abc import Iterable


class ExpectedError(Exception):
    """A failure whose message tells the user what to do; anything else keeps its traceback.

    `exit_code` is what `ct` ends with: 1 for expected errors, 2 for wrong usage.
    """

    exit_code = 1


class ValidationError(ExpectedError):
    """The input is wrong: the message names it and the fix."""


class UsageError(ValidationError):
    """The command line is wrong: unknown names, options that exclude each other."""

    exit_code = 2


class StateError(ExpectedError):
    """Something that must be there first is missing: a sandbox, a key, a finished log."""


class OperationError(ExpectedError):
    """Something outside failed: a service, a file, a child process."""


class Interrupted(ExpectedError):
    """The user stopped a run; what was finished by then is kept."""

    exit_code = 130

    def __init__(
        self,
        message: str = "interrupted; finished samples are kept: to go on, the same command with --resume",
    ) -> None:
        super().__init__(message)


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The end of an error message about an unknown name.

    Names are compared by their letters and digits only, so `crawl-depth` is near `crawl_depth`.

    Args:
        name: what was typed.
        known: what could have been meant.
        cutoff: how alike the nearest must be, from 0 to 1.

    Returns:
        `; did you mean 'x'?` with the nearest name, else a list of the known ones, else nothing.
    """

    def plain(text: str) -> str:
        return re.sub(r"[\W_]", "", text).lower()

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, plain(name), plain(other)).ratio()

    names = list(dict.fromkeys(known))
    nearest = max(names, key=likeness, default="")
    if nearest and likeness(nearest) >= cutoff:
        return f"; did you mean {nearest!r}?"
    if not names:
        return ""
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f" (there are: {shown})"


def on_one_line(text: str, longest: int = 300) -> str:
    """Somebody else's message as part of ours: one line, without Inspect's markup, cut when very long."""
    plain = re.sub(r"\[/?[a-z ]+\]", "", " ".join(text.split()))
    plain = plain.removeprefix("ERROR: ")
    return plain if len(plain) <= longest else plain[:longest] + "..."
