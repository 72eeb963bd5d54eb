"""The engine's prompts, as text files."""

from functools import cache
from importlib.resources import files


@cache
def prompt(package: str, name: str) -> str:
    """The text of the prompt file `<name>.md` beside the package `package`, without outer blank lines."""
    return (files(package) / f"{name}.md").read_text(encoding="utf-8").strip()
