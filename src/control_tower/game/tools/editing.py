"""Editing text files, as pure functions: text in, text and what to tell the agent out."""

import difflib


class EditError(ValueError):
    """An edit that cannot be done; the text tells the agent why."""


def numbered(text: str, first: int = 1, last: int | None = None) -> str:
    """The lines `first` to `last` (1-based, both included), each with its number."""
    lines = text.split("\n")
    end = len(lines) if last is None or last < 0 else last
    if not 1 <= first <= len(lines):
        raise EditError(f"line {first} is outside the file, which has {len(lines)} lines")
    if end < first:
        raise EditError(f"the last line {end} comes before the first line {first}")
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines[first - 1 : end], first))


def replaced(text: str, old: str, new: str) -> str:
    """The text with its one occurrence of `old` replaced."""
    if not old:
        raise EditError("the text to replace is empty")
    count = text.count(old)
    if count == 0:
        raise EditError("the text to replace does not occur in the file")
    if count > 1:
        raise EditError(f"the text to replace occurs {count} times; add lines around it until it is unique")
    return text.replace(old, new)


def inserted(text: str, line: int, new: str) -> str:
    """The text with `new` put after line `line`; 0 puts it before the first."""
    lines = text.split("\n")
    if not 0 <= line <= len(lines):
        raise EditError(f"line {line} is outside the file, which has {len(lines)} lines")
    return "\n".join([*lines[:line], *new.removesuffix("\n").split("\n"), *lines[line:]])


def diff(path: str, before: str, after: str) -> str:
    """What an edit changed, as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="", n=3)
    return "\n".join(lines) or "The file is unchanged."
