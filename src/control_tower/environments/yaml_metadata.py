"""`info.yml` of a task: a mapping whose texts may be taken from other files and keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

TEXT_KEYS = ("description", "short_description", "scorer_description", "coverage", "notes")
"""Keys whose value may be a template."""

_PLACEHOLDER = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+))")


class MetadataError(ValueError):
    """`info.yml` cannot be used; the message names the file and the key."""


def load_metadata_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; empty when the file is absent or holds nothing.

    Raises:
        MetadataError: not YAML, or something else than a mapping with text keys.
    """
    if not path.is_file():
        return {}
    try:
        loaded: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MetadataError(f"{path}: not readable as YAML: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[Any, Any], loaded)):
        raise MetadataError(f"{path}: must be a mapping of names to values")
    return cast(dict[str, Any], loaded)


def resolve_templates(metadata: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The metadata with its text keys written out.

    A mapping such as `{file: requirements.md}` is replaced by what its handlers make of the files (several
    are joined), and `$name` in a text by the value of another key.

    Raises:
        MetadataError: a file is missing, or a text key holds a list.
    """
    resolved = dict(metadata)
    for key in TEXT_KEYS:
        if key in metadata:
            resolved[key] = _resolve(key, metadata, folder)
    return resolved


def _resolve(key: str, metadata: Mapping[str, Any], folder: Path) -> str | None:
    value: object = metadata[key]
    if isinstance(value, str):
        return _fill(value, metadata, folder)
    return _text_of(key, value, folder)


def _fill(text: str, metadata: Mapping[str, Any], folder: Path) -> str:
    filled = False

    def replace(match: re.Match[str]) -> str:
        nonlocal filled
        name = cast(str, match["braced"] or match["plain"])
        if name not in metadata:
            return match[0]
        filled = True
        return _text_of(name, metadata[name], folder) or ""

    result = _PLACEHOLDER.sub(replace, text)
    return result.replace("\\n", "\n") if filled else text


def _text_of(key: str, value: object, folder: Path) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        parts = cast(Mapping[str, Any], value)
        return "".join(_HANDLERS[name](folder, rel) for name, rel in parts.items() if name in _HANDLERS)
    if isinstance(value, (int, float)):
        return str(value)
    raise MetadataError(f"{folder / 'info.yml'}: {key} must be a text or a mapping such as {{file: NAME}}")


def _file(folder: Path, relative: Any) -> str:
    path = folder / str(relative)
    if not path.is_file():
        raise MetadataError(f"{folder / 'info.yml'}: no file {str(relative)!r} in the task's folder")
    return path.read_text(encoding="utf-8")


def _bug_fix_description(folder: Path, relative: Any) -> str:
    output = _file(folder, relative).strip("\n")
    return (
        "Something in this codebase is broken. Its tests were run and printed this:\n\n"
        f"```\n{output}\n```\n\n"
        "Find the cause in the code and repair it, so that the behaviour the tests describe is restored. "
        "Do not change what the tests check."
    )


_HANDLERS: Mapping[str, Callable[[Path, Any], str]] = {
    "file": _file,
    "bug_fix_description": _bug_fix_description,
}
