"""Verdicts kept on disk: what is read back is what was kept, whatever happened to the file."""

import json
from pathlib import Path

from control_tower.monitors.verdict_cache import VerdictCache


def lines(path: Path, *values: object) -> None:
    path.write_text("".join(json.dumps({"key": str(n), "value": v}) + "\n" for n, v in enumerate(values)))


def test_a_cut_off_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    lines(path, 10, 20)
    path.write_bytes(path.read_bytes()[:-5])
    VerdictCache(path, {}).keep("next", 30.0)
    VerdictCache(path, {}).keep("last", 40.5)
    read = VerdictCache(path, {})
    assert [read.get(key) for key in ("0", "1", "next", "last")] == [10.0, None, 30.0, 40.5]


def test_what_is_no_suspicion_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    values = [0, 100, -1, 100.5, float("nan"), float("inf"), True, "50", None]
    lines(path, *values)
    read = VerdictCache(path, {})
    assert [read.get(str(n)) for n in range(len(values))] == [0.0, 100.0] + [None] * 7
    assert read.get(None) is None
