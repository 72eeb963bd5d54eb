"""What a check of a log found, and checking JSON against a table of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something about a log that is not as the format says.

    An error keeps readers from reading it right; a warning is a key that every log of today has.
    """

    level: Level
    rule: str
    """What kind of thing it is, for programs."""
    where: str
    """`archive`, `header`, or the sample."""
    message: str


class Place(NamedTuple):
    """A part of a log, to make findings about."""

    rule: str
    where: str

    def error(self, message: str) -> Finding:
        """Something that keeps readers from reading the log right."""
        return Finding("error", self.rule, self.where, message)

    def warning(self, message: str) -> Finding:
        """Something that is missing, but can be done without."""
        return Finding("warning", self.rule, self.where, message)


def check_table(
    place: Place, table: type[BaseModel], value: Any, path: str, required: frozenset[str] | None = None
) -> Iterator[Finding]:
    """What of a JSON object is not as a table says.

    Args:
        place: Where the object is.
        table: Its keys; one without a default must be there.
        value: The object.
        path: What it is called in messages.
        required: Keys whose absence is an error; that of the others is a warning. None: all.
    """
    try:
        table.model_validate(value)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_context=False):
            name = ".".join([path, *(str(part) for part in problem["loc"])])
            if problem["type"] != "missing":
                yield place.error(f"`{name}`: {problem['msg']} (it is {_short(problem['input'])})")
            elif required is None or problem["loc"][0] in required:
                yield place.error(f"`{name}` is missing")
            else:
                yield place.warning(f"`{name}` is missing")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
