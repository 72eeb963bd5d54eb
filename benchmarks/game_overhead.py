"""CPU of an action in the game, against a bare Inspect loop that makes the same model and tool calls.

An action of the game asks two models: the untrusted one and the seat, which repeats its answer. The bare
loop asks two as well and runs the same tool. Each is run in a process of its own, with a log.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.ratio import Ratio

TIMES = 3
SHORT, LONG = 20, 200


def measure() -> Iterator[Ratio]:
    """The ratio at both lengths, and how much an action's CPU grows from the short to the long run."""
    best: dict[tuple[str, int], float] = {}
    for _ in range(TIMES):
        for kind in ("bare", "game"):
            for steps in (SHORT, LONG):
                cpu = _cpu_per_action(kind, steps)
                best[kind, steps] = min(best.get((kind, steps), cpu), cpu)
    for steps in (SHORT, LONG):
        game, bare = best["game", steps], best["bare", steps]
        detail = f"{game * 1000:.1f} ms of {bare * 1000:.1f} ms"
        yield Ratio(f"CPU per action over a bare loop, {steps} steps", game / bare, 1.3, detail)
    # Inspect snapshots the whole conversation into every model event, so even the bare loop's CPU grows with
    # its length: what counts is that the game adds nothing that grows.
    growth = {kind: best[kind, LONG] / best[kind, SHORT] for kind in ("game", "bare")}
    detail = f"{growth['game']:.2f} times, the bare loop's {growth['bare']:.2f} times"
    name = f"growth of CPU per action from {SHORT} to {LONG} steps over the bare loop's"
    yield Ratio(name, growth["game"] / growth["bare"], 1.3, detail)


def _cpu_per_action(kind: str, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.played", kind, str(steps), folder]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(result.stdout.splitlines()[-1])["cpu_per_action"])
