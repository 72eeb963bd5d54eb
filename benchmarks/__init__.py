"""Speed, as ratios within one run: `python -m benchmarks` prints each with its bound."""
