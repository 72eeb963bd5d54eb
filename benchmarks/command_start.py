"""How fast `ct` answers a request for help, against `inspect --help`."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ratio import Ratio

TIMES = 5


def measure() -> Iterator[Ratio]:
    """Wall time of the two helps, the best of several runs each, taken in turn."""
    folder = Path(sys.executable).parent
    commands = {
        "inspect": [folder / "inspect", "--help"],
        "ct --help": [folder / "ct", "--help"],
        "ct run eval --help": [folder / "ct", "run", "eval", "--help"],
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(TIMES):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            best[name] = min(best[name], time.perf_counter() - start)
    for name, bound in (("ct --help", 0.25), ("ct run eval --help", 0.5)):
        detail = f"{best[name]:.2f} s of {best['inspect']:.2f} s"
        yield Ratio(f"{name} against inspect --help, wall time", best[name] / best["inspect"], bound, detail)
