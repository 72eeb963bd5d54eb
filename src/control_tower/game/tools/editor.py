"""The agent's editor, as one tool or as one tool an action; it works through the sandbox's file access."""

from collections.abc import Callable
from typing import Literal

from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import sandbox

from control_tower.game.tools.editing import EditError, diff, inserted, numbered, replaced


async def _read(path: str) -> str:
    try:
        return await sandbox().read_file(path)
    except FileNotFoundError:
        raise ToolError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ToolError(f"{path} is a directory") from None
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not a text file") from None


async def _edit(path: str, change: Callable[[str], str]) -> str:
    before = await _read(path)
    try:
        after = change(before)
    except EditError as error:
        raise ToolError(f"{path}: {error}") from None
    await _write(path, after)
    return diff(path, before, after)


async def _write(path: str, text: str) -> None:
    try:
        await sandbox().write_file(path, text)
    except IsADirectoryError:
        raise ToolError(f"{path} is a directory") from None


async def _show(path: str, first: int, last: int | None) -> str:
    try:
        return numbered(await _read(path), first, last)
    except EditError as error:
        raise ToolError(f"{path}: {error}") from None


async def _create(path: str, text: str) -> str:
    await _write(path, text)
    return f"Wrote {path}."


@tool(parallel=False)
def view() -> Tool:
    """Shows a file."""

    async def execute(path: str, first_line: int = 1, last_line: int | None = None) -> str:
        """Show the lines of a text file with their numbers.

        Args:
            path: The file.
            first_line: The first line to show, from 1.
            last_line: The last line to show; the end of the file when left out.
        """
        return await _show(path, first_line, last_line)

    return execute


@tool(parallel=False)
def replace_text() -> Tool:
    """Replaces text that occurs once."""

    async def execute(path: str, old_text: str, new_text: str) -> str:
        """Replace text in a file; it must occur there exactly once.

        Args:
            path: The file.
            old_text: The text to replace, spaces and line ends included.
            new_text: What to put in its place.
        """
        return await _edit(path, lambda text: replaced(text, old_text, new_text))

    return execute


@tool(parallel=False)
def insert_text() -> Tool:
    """Inserts lines."""

    async def execute(path: str, line: int, new_text: str) -> str:
        """Insert text after a line of a file.

        Args:
            path: The file.
            line: The line after which to insert; 0 inserts at the top.
            new_text: The lines to insert.
        """
        return await _edit(path, lambda text: inserted(text, line, new_text))

    return execute


@tool(parallel=False)
def delete_text() -> Tool:
    """Deletes text that occurs once."""

    async def execute(path: str, old_text: str) -> str:
        """Delete text from a file; it must occur there exactly once.

        Args:
            path: The file.
            old_text: The text to delete, spaces and line ends included.
        """
        return await _edit(path, lambda text: replaced(text, old_text, ""))

    return execute


@tool(parallel=False)
def create_file() -> Tool:
    """Writes a whole file."""

    async def execute(path: str, text: str) -> str:
        """Write a file, replacing it if it exists.

        Args:
            path: The file.
            text: Its whole content.
        """
        return await _create(path, text)

    return execute


@tool(parallel=False)
def text_editor() -> Tool:
    """View and edit files with one tool."""

    async def execute(
        command: Literal["view", "create", "str_replace", "insert"],
        path: str,
        file_text: str = "",
        old_str: str = "",
        new_str: str = "",
        insert_line: int = 0,
        insert_text: str = "",
        view_range: list[int] | None = None,
    ) -> str:
        """View, create or edit a text file.

        Args:
            command: What to do: view, create, str_replace or insert.
            path: The file.
            file_text: create: the whole content.
            old_str: str_replace: the text to replace; it must occur exactly once.
            new_str: str_replace: what to put in its place.
            insert_line: insert: the line after which to insert; 0 inserts at the top.
            insert_text: insert: the lines to insert.
            view_range: view: first and last line to show; -1 as last is the end of the file.
        """
        match command:
            case "view":
                first, last = view_range if view_range and len(view_range) == 2 else (1, None)
                return await _show(path, first, last)
            case "create":
                return await _create(path, file_text)
            case "str_replace":
                return await _edit(path, lambda text: replaced(text, old_str, new_str))
            case "insert":
                # Some models know `new_str` as the name of what they insert.
                return await _edit(path, lambda text: inserted(text, insert_line, insert_text or new_str))

    return execute
