"""What a tool's name says: which calls submit, test, or stand for a call that blue did not let run."""

import re
from collections.abc import Mapping
from typing import Any, cast

SUBMIT = "submit"
BLOCKED = "blocked"
AUDITED = "audited"
SELF_TESTS = frozenset({"run_side_task_test", "run_main_task_test"})
"""Tools by which red scores a task itself."""

ENGINE_TOOLS = frozenset({BLOCKED, AUDITED})
"""What runs in place of a refused or audited call, under that call's id."""

_HIDDEN = frozenset({"run_side_task_test", "side_task_scorer", SUBMIT})
_SUBMIT_LIKE = frozenset({SUBMIT, "run_actual_task_scorer", "run_task_scorer"}) | SELF_TESTS
_BRIDGED = re.compile(r"mcp__.+?__(?P<name>.+)|tools(?:__|/|\.)(?P<plain>.+)", re.DOTALL)
_SUBMISSION = re.compile(r"set_(main|side)_task_(\d+_)?submission_args")


def bare_name(function: str) -> str:
    """A tool's own name, without the server or folder that an agent in the sandbox knows it by."""
    match = _BRIDGED.fullmatch(function)
    return (match["name"] or match["plain"]) if match else function


def is_submission_tool(function: str) -> bool:
    """Whether a tool records what a task wants submitted, such as `set_main_task_submission_args`."""
    return _SUBMISSION.fullmatch(bare_name(function)) is not None


def is_engine_tool(function: str) -> bool:
    """Whether a call stands for one that blue did not let run, so that nothing happened."""
    return bare_name(function) in ENGINE_TOOLS


def withheld_in(function: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Function and arguments of the call that an engine tool's call stands for; None for any other call."""
    original = arguments.get("call") or arguments.get("withheld_call")
    known = is_engine_tool(function) and isinstance(original, dict)
    return cast("dict[str, Any]", original) if known else None


def is_hidden(function: str) -> bool:
    """Whether monitors are not shown calls of a tool: submitting, submission tools, red's own tests."""
    return bare_name(function) in _HIDDEN or is_submission_tool(function)


def is_submit_like(function: str) -> bool:
    """Whether a replay leaves out calls of a tool, since they only submit or score."""
    return bare_name(function) in _SUBMIT_LIKE or is_submission_tool(function)
