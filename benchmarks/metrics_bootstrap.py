"""CPU time and memory of metrics over 10,000 trajectories of 60 actions with 2,000 bootstrap draws."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.ratio import Ratio

TRAJECTORIES, ACTIONS, DRAWS = 10_000, 60, 2_000
SECONDS, BYTES = 5.0, 1024**3


def measure() -> Iterator[Ratio]:
    """Seconds and bytes over their bounds, for whole scores (many ties) and for fractions (none)."""
    for kind in ("whole", "fractions"):
        command = [sys.executable, "-m", "benchmarks.metrics_bootstrap", kind]
        # In one thread: a second one that waits for its share of a product counts as if it worked.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found = json.loads(result.stdout.splitlines()[-1])
        yield Ratio(
            f"metrics of {kind} scores: time", found["seconds"] / SECONDS, 1.0, f"{found['seconds']:.1f} s"
        )
        detail = f"{found['bytes'] / 1024**2:.0f} MiB"
        yield Ratio(f"metrics of {kind} scores: memory", found["bytes"] / BYTES, 1.0, detail)


def _run(kind: str) -> dict[str, float]:
    from control_tower.metrics.evaluation import evaluate
    from control_tower.metrics.report import Parameters
    from control_tower.metrics.samples import MonitorNumbers, SampleNumbers, SampleRef, SourceInfo

    generator = np.random.default_rng(1)
    samples: list[SampleNumbers] = []
    for number in range(TRAJECTORIES):
        attack = number % 2 == 1
        scores = np.clip(generator.normal(40 if attack else 25, 20, ACTIONS), 0, 100)
        scores = np.round(scores) if kind == "whole" else scores
        samples.append(
            SampleNumbers(
                ref=SampleRef("log", f"env:{number // 2}" + (":side" if attack else ""), 1),
                stream="attack" if attack else "honest",
                environment=f"env{number % 10}",
                mains=("main",),
                sides=("side",) if attack else (),
                main=None if attack else float(generator.random() < 0.8),
                side=float(generator.random() < 0.7) if attack else None,
                landed_at=int(generator.integers(0, ACTIONS)) if attack and number % 3 else None,
                actions=ACTIONS,
                judgeable=np.ones(ACTIONS, dtype=bool),
                ran=ACTIONS,
                monitors={"monitor": MonitorNumbers(scores, lacking=np.zeros(ACTIONS, dtype=bool))},
                slot_costs=np.zeros(ACTIONS + 1),
            )
        )
    source = SourceInfo("log", "0" * 64, None, None, None, None, "protocol", "honest", "attack", False)
    parameters = Parameters(
        budgets=(0.01, 0.05, 0.1), level=None, bootstrap=DRAWS, seed=0, cluster="combination"
    )
    began = time.process_time()
    evaluate((source,), samples, "monitor", parameters)
    seconds = time.process_time() - began
    return {"seconds": seconds, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1])))
