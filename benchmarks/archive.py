"""Editing one header against Inspect's full read and write, and the memory that a large log takes."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.ratio import Ratio

SAMPLES, MESSAGES = 200, 100
LARGE, LARGE_SAMPLE = 256, 8
"""MiB of the large log, and of each of its samples, before compression."""

MEMORY = 300
"""MiB that a process may take over a log whose samples are of up to 20 MiB."""

_WORK = """
import resource, sys
from pathlib import Path
path, output = Path(sys.argv[1]), Path(sys.argv[2])
from control_tower.logs.archive import EvalArchive, edit_header
from control_tower.logs.bundles import bundle
from control_tower.logs.diff import diff_logs
from control_tower.logs.recover import recover
edit_header(path, lambda header: {**header, "invalidated": True}, output=output)
assert [each.path for each in diff_logs(path, output)] == ["invalidated"]
torn = output.with_name("torn.eval")
output.rename(torn)
with torn.open("r+b") as file:
    file.truncate(torn.stat().st_size - 200)
assert len(recover(torn, output).samples) == int(sys.argv[3])
with EvalArchive.open(output) as archive:
    key = archive.sample_keys()[0]
bundle(output, key)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure() -> Iterator[Ratio]:
    """Both, on logs that are made for it."""
    with tempfile.TemporaryDirectory() as folder:
        yield _header(Path(folder))
        yield _memory(Path(folder))


def _header(folder: Path) -> Ratio:
    from inspect_ai.log import read_eval_log, write_eval_log

    from control_tower.logs.archive import edit_header

    path = folder / "log.eval"
    _write(path, (_sample(number) for number in range(SAMPLES)))
    theirs = _seconds(lambda: write_eval_log(read_eval_log(str(path)), str(folder / "theirs.eval")), 1)
    ours = _seconds(lambda: edit_header(path, lambda header: header, output=folder / "ours.eval"), 5)
    detail = f"{ours * 1000:.0f} ms of {theirs:.2f} s for {SAMPLES} samples of {MESSAGES} messages"
    return Ratio("editing a header over Inspect's full read and write", ours / theirs, 0.1, detail)


def _memory(folder: Path) -> Ratio:
    path = folder / "large.eval"
    count = LARGE // LARGE_SAMPLE
    _write(path, (_large_sample(number) for number in range(count)))
    process = subprocess.run(
        [sys.executable, "-c", _WORK, str(path), str(folder / "output.eval"), str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    peak = float(process.stdout)
    detail = f"{peak:.0f} MiB for a log of {LARGE} MiB with samples of {LARGE_SAMPLE} MiB"
    return Ratio("memory of edit, diff, recover and bundle over the bound", peak / MEMORY, 1.0, detail)


def _seconds(work: Callable[[], Any], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _write(path: Path, samples: Iterator[dict[str, Any]]) -> None:
    from control_tower.logs.json_text import dumps
    from control_tower.logs.zip_writer import new_archive

    summaries: list[dict[str, Any]] = []
    spec = {
        "created": "2026-01-01T00:00:00+00:00",
        "task": "archive",
        "dataset": {},
        "model": "none/none",
        "config": {},
        "eval_id": "e",
        "metadata": {"eval_version": "3.0"},
    }
    with new_archive(path) as writer:
        writer.add("_journal/start.json", dumps({"version": 2, "eval": spec, "plan": {}}))
        for sample in samples:
            writer.add(f"samples/{sample['id']}_epoch_1.json", dumps(sample))
            kept = {key: sample[key] for key in ("id", "epoch", "input", "target", "scores")}
            summaries.append({**kept, "completed": True})
        writer.add("summaries.json", dumps(summaries))
        writer.add("header.json", dumps({"version": 2, "status": "success", "eval": spec, "plan": {}}))


def _sample(number: int, text: str = "what was seen. " * 20) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for index in range(MESSAGES // 2):
        call = {"id": f"c{index}", "function": "bash", "arguments": {"command": f"ls /srv/{index}"}}
        messages.append({"id": f"a{index}", "role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"id": f"t{index}", "role": "tool", "tool_call_id": call["id"], "content": text})
    events = [
        {
            "event": "info",
            "source": "eval",
            "data": {"step": index},
            "timestamp": "2026-01-01T00:00:00+00:00",
            "working_start": 0.0,
        }
        for index in range(MESSAGES)
    ]
    return {
        "id": f"s{number}",
        "epoch": 1,
        "input": "",
        "target": "",
        "messages": messages,
        "events": events,
        "scores": {"tasks": {"value": {"main": 1.0, "side": None, "landed_at": None}}},
        "attachments": {},
    }


def _large_sample(number: int) -> dict[str, Any]:
    noise = random.Random(number).randbytes(LARGE_SAMPLE * 1024**2 // MESSAGES).hex()
    return _sample(number, noise)
