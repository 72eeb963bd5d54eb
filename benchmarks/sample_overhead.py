"""One scripted sample end to end, against a bare Inspect eval of the same work in the same sandbox."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.ratio import Ratio

TIMES = 3


def measure() -> Iterator[Ratio]:
    """Wall time and peak memory, the best of several runs each, taken in turn."""
    best: dict[str, dict[str, float]] = {"ct": {}, "bare": {}}
    for _ in range(TIMES):
        for kind, record in best.items():
            for name, value in _run(kind).items():
                record[name] = min(record.get(name, value), value)
    for name, unit in (("wall", "s"), ("memory", "MiB")):
        ours, bare = best["ct"][name], best["bare"][name]
        detail = f"{ours:.1f} {unit} of {bare:.1f} {unit}"
        yield Ratio(f"a scripted sample over a bare eval, {name}", ours / bare, 1.1, detail)


def _run(kind: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.one_sample", kind, folder]
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    if status != 0 or not json.loads(output.splitlines()[-1])["scored"]:
        raise RuntimeError(f"{kind} did not finish")
    return {"wall": wall, "memory": usage.ru_maxrss / 1024}
