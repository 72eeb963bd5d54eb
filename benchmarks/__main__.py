"""Run the benchmarks: `python -m benchmarks [NAME...]`; ends with 1 when a bound is broken."""

import sys
from collections.abc import Callable, Iterable

from benchmarks import (
    archive,
    command_start,
    conversion,
    game_overhead,
    metrics_bootstrap,
    metrics_extraction,
    sample_overhead,
)
from benchmarks.ratio import Ratio

BENCHMARKS: dict[str, Callable[[], Iterable[Ratio]]] = {
    "archive": archive.measure,
    "command-start": command_start.measure,
    "conversion": conversion.measure,
    "game-overhead": game_overhead.measure,
    "metrics-bootstrap": metrics_bootstrap.measure,
    "metrics-extraction": metrics_extraction.measure,
    "sample-overhead": sample_overhead.measure,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, all when none is named."""
    kept = True
    for name in names or BENCHMARKS:
        for ratio in BENCHMARKS[name]():
            print(ratio, flush=True)
            kept = kept and ratio.kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
