"""One line on a terminal that says how far something is."""

import sys
import time
from types import TracebackType
from typing import Self

import click

EVERY = 0.1
"""Seconds between two states of the line."""


class Progress:
    """A `client.prepared.Progress`; without a terminal on stderr it says nothing."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._began: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say it."""
        now = time.monotonic()
        began = self._began.setdefault(what, now)
        if sys.stderr.isatty() and (now - self._shown > EVERY or done >= total):
            self._shown = now
            text = f"{done}/{total}"
            if what in ("uploading", "downloading"):
                rate = f", {_size(done / (now - began))}/s" if now > began else ""
                text = f"{_size(done)} of {_size(total)}{rate}"
            click.echo(f"\r\033[K{what}: {text}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
