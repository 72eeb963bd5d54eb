"""How a fleet is doing: one line on stderr that is redrawn, and warnings above it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.output import printable
from control_tower.fleet.next_steps import way_on

if TYPE_CHECKING:
    from control_tower.fleet.progress import Progress

_REDRAW, _REPEAT = 0.25, 30.0
"""Seconds between two states of the line: on a terminal, and where each is a line of its own."""

_FAILURES = 5
"""Failed jobs that are named; the line counts the others."""


class FleetLine:
    """Shows a fleet to a person; a `fleet.drive.Watcher`."""

    def __init__(self, fleet: str, ends_after: float | None = None) -> None:
        """Shows nothing yet.

        Args:
            fleet: Its id.
            ends_after: Seconds after which a pause that nobody ends becomes the end.
        """
        self._fleet = fleet
        self._ends_after = ends_after
        self._terminal = sys.stderr.isatty()
        self._line = ""
        self._shown = float("-inf")
        self._failures = 0
        self._last = False
        self._gone = False

    def progress(self, progress: Progress) -> None:
        """Redraws the line, not more often than an eye or a log can take."""
        now, line = time.monotonic(), progress.line()
        every = _REDRAW if self._terminal else _REPEAT
        last = 0 < progress.total <= progress.done
        if line == self._line or (now - self._shown < every and (self._last or not last)):
            return
        self._last = last
        self._line, self._shown = line, now
        self._draw()

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Says what somebody should know who looks at the line only."""
        if (text := self._warning(kind, fields)) is not None:
            self.say(text)

    def say(self, text: str) -> None:
        """Writes above the line."""
        begin = "\r\033[K" if self._terminal else ""
        self._write(f"{begin}{printable(text)}\n")
        if self._terminal and self._line:
            self._draw()

    def close(self) -> None:
        """Leaves the last state of the line standing."""
        if self._terminal and self._line:
            self._write("\n")
        self._line = ""

    def _draw(self) -> None:
        if self._terminal:
            self._write(f"\r\033[K{self._line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{self._line}\n")

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            click.echo(text, err=True, nl=False)
        except OSError:
            # The terminal was closed; the fleet goes on without it.
            self._gone = True

    def _warning(self, kind: str, fields: Mapping[str, Any]) -> str | None:
        if kind == "alarm":
            return f"warning: {fields['text']}"
        if kind == "worker_lost":
            held = fields.get("held") or 0
            again = f"; its {held} running begin again" if held else ""
            return f"warning: worker {fields['instance_id']} was lost{again}"
        if kind == "pause":
            return self._paused(fields)
        if kind == "budget" and fields["hard"]:
            spent = f"${fields['spent_usd']:.2f} of ${fields['budget_usd']:g}"
            on = way_on(self._fleet, "hard budget")
            return f"warning: the hard budget is spent, {spent}: what runs is ended. To go on: {on}"
        if kind == "job_done" and fields["status"] == "failed":
            self._failures += 1
            if self._failures <= _FAILURES:
                return f"failed: {self._failure(fields)}"
        return None

    def _failure(self, fields: Mapping[str, Any]) -> str:
        told = ": ".join(str(fields[name]) for name in ("failure_category", "error_summary") if fields[name])
        return f"job {fields['job_id']} {told}; more: ct fleet why {self._fleet} {fields['job_id']}"

    def _paused(self, fields: Mapping[str, Any]) -> str:
        why = fields["why"]
        runs = "" if "hard budget" in why else "; what runs goes on"
        text = f"paused: {why}{runs}. To go on: {way_on(self._fleet, why)}"
        causes = "; ".join(f"{count} x {cause}" for cause, count in fields.get("causes") or ())
        text += f" (failures: {causes})" if causes else ""
        if self._ends_after:
            text += f"; it ends in {self._ends_after / 60:.0f} minutes otherwise"
        return text
