"""CPU of an action in the game, against a bare Inspect loop that makes the same model and tool calls.

An action of the game asks two models: the untrusted one and the seat, which repeats its answer; a monitored
one asks a judge as well and runs its call of the score tool. The bare loop does the same calls and nothing
else. The two are played at the same time, each in a process of its own with a log, so that whatever else the
machine does slows down both; of several such pairs the median ratio counts.

Inspect snapshots the whole conversation into every model event, so even the bare loop's CPU grows with its
length. What is bounded is that the game adds nothing that grows: its growth over the bare loop's.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median

from benchmarks.ratio import Ratio

SHORT, LONG = 20, 200
PAIRS = {SHORT: 5, LONG: 3}
SAMPLES = {SHORT: 8, LONG: 2}
"""How many samples of a length a process plays; the first of them is not counted."""
BOUND = 1.3


def measure() -> Iterator[Ratio]:
    """The ratio at both lengths and the growth between them, without and with a monitor."""
    for kind, what in (("game", "an action"), ("monitored", "a monitored action")):
        pairs = {steps: [_pair(kind, steps) for _ in range(PAIRS[steps])] for steps in (SHORT, LONG)}
        ratios = {steps: median(ours / bare for ours, bare in found) for steps, found in pairs.items()}
        times = {
            steps: (median(ours for ours, _ in found) * 1000, median(bare for _, bare in found) * 1000)
            for steps, found in pairs.items()
        }
        for steps in (SHORT, LONG):
            ours, bare = times[steps]
            detail = f"about {ours:.1f} ms of {bare:.1f} ms"
            yield Ratio(f"CPU of {what} over a bare loop, {steps} steps", ratios[steps], BOUND, detail)
        ours, bare = (long / short for long, short in zip(times[LONG], times[SHORT], strict=True))
        detail = f"about {ours:.2f} times, the bare loop's {bare:.2f} times"
        name = f"growth of the CPU of {what} from {SHORT} to {LONG} steps over the bare loop's"
        yield Ratio(name, ratios[LONG] / ratios[SHORT], BOUND, detail)


def _pair(kind: str, steps: int) -> tuple[float, float]:
    """CPU seconds of an action in the game and in the bare loop, played side by side."""
    bare = "bare" if kind == "game" else f"bare-{kind}"
    with tempfile.TemporaryDirectory() as folder:
        started = [_start(each, steps, f"{folder}/{each}") for each in (kind, bare)]
        ours, theirs = (_cpu(process) for process in started)
    return ours, theirs


def _start(kind: str, steps: int, folder: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.played", kind, str(steps), str(SAMPLES[steps]), folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _cpu(process: "subprocess.Popen[str]") -> float:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    return median(json.loads(output.splitlines()[-1]))
