"""A child process that compares two unpacked trees and writes what changed as a unified diff.

Standard library only: it is run by path. The texts are untrusted, and comparing them line by line can
take any time, so each file has a budget and is shown whole when that is used up.
"""

from __future__ import annotations

import difflib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

SECONDS_PER_FILE = 2.0
MOST_LINES = 20_000
LONGEST_SHOWN = 1024 * 1024

Entry = dict[str, Any]


class TooSlow(Exception):
    """Comparing a file took its whole budget."""


def main(old: Path, new: Path, out: Path, limits: dict[str, Any]) -> None:
    """Write `out`/changes.json and `out`/unified.diff."""
    before, after = read_manifest(old), read_manifest(new)
    changes = {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "modified": sorted(
            path for path in before.keys() & after.keys() if identity(before[path]) != identity(after[path])
        ),
    }
    (out / "changes.json").write_text(json.dumps(changes), encoding="utf-8")
    most = int(limits["diff_bytes"])
    with (out / "unified.diff").open("w", encoding="utf-8", errors="backslashreplace", newline="") as unified:
        for path in sorted({path for paths in changes.values() for path in paths}):
            write_change(unified, path, Side(old, before.get(path)), Side(new, after.get(path)))
            if unified.tell() > most:
                unified.write("... more changes are not shown\n")
                break


def read_manifest(tree: Path) -> dict[str, Entry]:
    """The entries of a tree by path, without its folders."""
    entries: dict[str, Entry] = {}
    with (tree / "manifest.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            entry = cast(Entry, json.loads(line))
            if entry["kind"] != "dir":
                entries[entry["path"]] = entry
    return entries


def identity(entry: Entry) -> tuple[str, int, str]:
    """What makes two entries the same."""
    return entry["kind"], entry["mode"], entry["sha256"]


class Side:
    """One side of a changed path."""

    def __init__(self, tree: Path, entry: Entry | None) -> None:
        self.entry = entry
        self._tree = tree

    @property
    def mode(self) -> str | None:
        """Kind and permissions as git writes them."""
        if self.entry is None:
            return None
        kinds = {"file": 0o100000, "symlink": 0o120000, "other": 0}
        return format(kinds[self.entry["kind"]] | self.entry["mode"], "06o")

    def lines(self) -> list[str] | None:
        """The text, None when it is binary, too long or was not kept."""
        if self.entry is None:
            return []
        if self.entry["kind"] != "file":
            return [f"{self.entry['kind']}: {self.entry['target']}"] if "target" in self.entry else None
        blob = self._tree / "blobs" / self.entry["sha256"]
        if not blob.is_file() or blob.stat().st_size > LONGEST_SHOWN:
            return None
        data = blob.read_bytes()
        if b"\0" in data:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        lines = text.split("\n")
        if lines[-1] == "":
            return lines[:-1]
        return [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def write_change(out: TextIO, path: str, old: Side, new: Side) -> None:
    """One path's change in the form that git gives it."""
    shown = path if path.isprintable() else json.dumps(path)
    out.write(f"diff a/{shown} b/{shown}\n")
    if old.mode is None:
        out.write(f"new file mode {new.mode}\n")
    elif new.mode is None:
        out.write(f"deleted file mode {old.mode}\n")
    elif old.mode != new.mode:
        out.write(f"old mode {old.mode}\nnew mode {new.mode}\n")
    if old.entry and new.entry and old.entry["sha256"] == new.entry["sha256"]:
        return
    before, after = old.lines(), new.lines()
    if before is None or after is None:
        out.write(f"Binary or large files differ: {_sum(old)} -> {_sum(new)}\n")
        return
    old_name = "/dev/null" if old.entry is None else f"a/{shown}"
    new_name = "/dev/null" if new.entry is None else f"b/{shown}"
    for line in compared(before, after, old_name, new_name):
        out.write(line + "\n")


def _sum(side: Side) -> str:
    return "nothing" if side.entry is None else f"sha256 {side.entry['sha256']}"


def compared(before: list[str], after: list[str], old_name: str, new_name: str) -> list[str]:
    """The unified diff of two texts; both whole when they are too long or take too long."""
    if max(len(before), len(after)) <= MOST_LINES:
        try:
            with_budget(SECONDS_PER_FILE)
            return list(difflib.unified_diff(before, after, old_name, new_name, lineterm=""))
        except TooSlow:
            pass
        finally:
            with_budget(0)
    return list(replaced(before, after, old_name, new_name))


def replaced(before: list[str], after: list[str], old_name: str, new_name: str) -> Iterator[str]:
    """A diff that takes all of one text away and adds all of the other."""
    yield from (f"--- {old_name}", f"+++ {new_name}", f"@@ -1,{len(before)} +1,{len(after)} @@")
    yield from ("-" + line for line in before)
    yield from ("+" + line for line in after)


def with_budget(seconds: float) -> None:
    """Raise TooSlow after so much processor time; 0 takes the budget back."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


if __name__ == "__main__":
    signal.signal(signal.SIGVTALRM, _too_slow)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
