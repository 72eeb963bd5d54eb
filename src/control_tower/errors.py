"""Errors that a user can act on: one line on stderr, an exit code, no traceback."""


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
