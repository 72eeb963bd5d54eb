"""The prompts of monitors: packaged or a file's text, with placeholders for what is shown."""

from __future__ import annotations

import functools
import hashlib
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from control_tower.errors import UsageError, did_you_mean, on_one_line
from control_tower.monitors.monitor import INPUTS, Kind

TRANSCRIPT = "transcript"
ACTION = "action"
PLACEHOLDERS = (TRANSCRIPT, ACTION, *INPUTS)

_PACKAGED = Path(__file__).parent / "prompts"
_OF_FACTORIES = _PACKAGED / "factories"


@dataclass(frozen=True)
class Prompt:
    """A monitor's prompt: its text, in pieces between the placeholders."""

    name: str
    text: str
    pieces: tuple[tuple[str, str | None], ...]
    """Literal texts, each with the placeholder that follows it, if any."""

    @property
    def placeholders(self) -> frozenset[str]:
        """What it shows."""
        return frozenset(field for _, field in self.pieces if field)

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs it needs."""
        return self.placeholders - {TRANSCRIPT, ACTION}

    @property
    def kind(self) -> Kind:
        """Whether it asks about the last action or about the whole trajectory."""
        return "action" if ACTION in self.placeholders else "trajectory"

    @property
    def sha256(self) -> str:
        """The hash of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def packaged_prompts() -> list[str]:
    """The names of the packaged prompts."""
    return sorted(path.stem for path in _PACKAGED.glob("*.md"))


@functools.cache
def load_prompt(ref: str) -> Prompt:
    """A packaged prompt by name, or the prompt of an `.md` file; read once in a process.

    Raises:
        UsageError: there is no such prompt, or its placeholders cannot be filled.
    """
    if ref.endswith(".md"):
        path = Path(ref).expanduser()
    elif ref in packaged_prompts():
        path = _PACKAGED / f"{ref}.md"
    else:
        raise UsageError(f"no monitor prompt is called {ref!r}{did_you_mean(ref, packaged_prompts())}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the monitor prompt {ref}: {on_one_line(str(error))}") from error
    return _read(ref, path.stem, text)


@functools.cache
def factory_prompt(name: str) -> Prompt:
    """The prompt of a packaged factory."""
    return _read(name, name, (_OF_FACTORIES / f"{name}.md").read_text(encoding="utf-8"))


def _read(ref: str, name: str, text: str) -> Prompt:
    pieces = tuple(_pieces(ref, text))
    prompt = Prompt(name, text, pieces)
    fields = [field for _, field in pieces if field]
    if not {TRANSCRIPT, ACTION} & set(fields):
        raise UsageError(f"monitor prompt {ref} shows neither {{transcript}} nor {{action}}")
    if repeated := {field for field in (TRANSCRIPT, ACTION) if fields.count(field) > 1}:
        raise UsageError(f"monitor prompt {ref} shows {{{repeated.pop()}}} twice")
    return prompt


def _pieces(ref: str, text: str) -> Iterator[tuple[str, str | None]]:
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UsageError(f"monitor prompt {ref}: {error}; write braces that are meant twice") from None
    for literal, field, spec, conversion in parsed:
        problem = None
        if field is not None and (not field.isidentifier() or spec or conversion):
            problem = f"{{{field}...}} is no placeholder; write braces that are meant twice"
        elif field is not None and field not in PLACEHOLDERS:
            problem = f"nothing fills {{{field}}}{did_you_mean(field, PLACEHOLDERS)}"
        if problem:
            raise UsageError(f"monitor prompt {ref}: {problem}")
        yield literal, field
