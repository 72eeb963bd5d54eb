"""Making a run of a log with a viewer on the same machine: how long it takes in all, and how much memory."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.conversion import write_old_log
from benchmarks.ratio import Ratio

SAMPLES, MESSAGES = 200, 100
TIMES = 5
SECONDS, MIB = 2.0, 200.0

_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def measure() -> Iterator[Ratio]:
    """Wall time of `ct runs make` from start to end, the best of several logs; then its peak memory."""
    from control_tower.conversion.convert import convert
    from control_tower.logs.archive import edit_header

    ct = str(Path(sys.executable).with_name("ct"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log.eval"
        convert(write_old_log(folder / "old.eval", "2.1", SAMPLES, MESSAGES), log)
        own = {**os.environ, "CONTROL_TOWER_DATA_DIR": name, "CONTROL_TOWER_CONFIG_DIR": name}
        serve = [ct, "viewer", "serve", "--port", "0"]
        with subprocess.Popen(serve, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout
                url = re.search(rb"http://\S+", server.stdout.readline())
                assert url
                own["CONTROL_TOWER_API_BASE_URL"] = url[0].decode()
                best, peak = float("inf"), 0.0
                for number in range(TIMES):
                    # Each log is another one, so that it is sent.
                    edit_header(log, lambda header, n=number: {**header, "benchmark": n})
                    command = [sys.executable, "-c", _PEAK, ct, "runs", "make", str(log)]
                    began = time.perf_counter()
                    done = subprocess.run(command, env=own, check=True, capture_output=True, text=True)
                    best = min(best, time.perf_counter() - began)
                    peak = max(peak, float(done.stdout))
            finally:
                server.terminate()
    what = f"{SAMPLES} samples x {MESSAGES} messages"
    yield Ratio("ct runs make over the bound", best / SECONDS, 1.0, f"{best:.2f} s for {what}")
    yield Ratio("memory of ct runs make over the bound", peak / MIB, 1.0, f"{peak:.0f} MiB for {what}")
