"""Run the benchmarks: `python -m benchmarks [NAME...]`; ends with 1 when a bound is broken."""

import sys
from collections.abc import Callable, Iterable

from benchmarks import (
    archive,
    command_start,
    conversion,
    fleet,
    game_overhead,
    metrics_bootstrap,
    metrics_extraction,
    runs_listing,
    runs_make,
    sample_overhead,
)
from benchmarks.ratio import Ratio

BENCHMARKS: dict[str, Callable[[], Iterable[Ratio]]] = {
    "archive": archive.measure,
    "command-start": command_start.measure,
    "conversion": conversion.measure,
    "fleet": fleet.measure,
    "game-overhead": game_overhead.measure,
    "metrics-bootstrap": metrics_bootstrap.measure,
    "metrics-extraction": metrics_extraction.measure,
    "runs-make": runs_make.measure,
    "sample-overhead": sample_overhead.measure,
}
ON_DEMAND: dict[str, Callable[[], Iterable[Ratio]]] = {
    "conversion-large": conversion.measure_large,
    "runs-listing": runs_listing.measure,
}
"""Those that take so long, or so much room, that they run only when named."""


def main(names: list[str]) -> int:
    """Run the named benchmarks; when none is named, all but those on demand."""
    kept = True
    for name in names or BENCHMARKS:
        for ratio in {**BENCHMARKS, **ON_DEMAND}[name]():
            print(ratio, flush=True)
            kept = kept and ratio.kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
