"""What the process has done so far, in the text format of Prometheus."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
"""Seconds by which answers are sorted."""

_EVERY = 0.5
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PREFIX = "control_tower_viewer"


class Monitoring:
    """Counts of one process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._uploaded: Counter[str] = Counter()
        self._lag = 0.0
        self._most_lag = 0.0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """An answered request; status 0 is one that was never answered."""
        # Anybody may invent methods; each would stay for ever.
        self._requests[method if method in _METHODS else "other", route, status] += 1
        self._durations[route, bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds

    def uploaded(self, what: str) -> None:
        """A step of an upload that has ended well: `part`, `log`, `run`."""
        self._uploaded[what] += 1

    async def watch(self) -> None:
        """Measures for ever how late the event loop is."""
        while True:
            due = time.perf_counter() + _EVERY
            await asyncio.sleep(_EVERY)
            self._lag = max(time.perf_counter() - due, 0.0)
            self._most_lag = max(self._lag, self._most_lag)

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in sorted(self._requests.items()):
            yield _sample("requests_total", {"method": method, "route": route, "status": status}, count)
        yield from _head("request_seconds", "histogram", "How long answers took.")
        for route in sorted(self._seconds):
            count = 0
            for place, bound in enumerate([*map(str, BOUNDS), "+Inf"]):
                count += self._durations[route, place]
                yield _sample("request_seconds_bucket", {"route": route, "le": bound}, count)
            yield _sample("request_seconds_sum", {"route": route}, self._seconds[route])
            yield _sample("request_seconds_count", {"route": route}, count)
        yield from _head("uploaded_total", "counter", "Steps of uploads that have ended well.")
        for what, count in sorted(self._uploaded.items()):
            yield _sample("uploaded_total", {"what": what}, count)
        yield from _head("loop_lag_seconds", "gauge", "How late the event loop was when last measured.")
        yield _sample("loop_lag_seconds", {}, self._lag)
        yield from _head("loop_lag_seconds_max", "gauge", "The latest that it has been.")
        yield _sample("loop_lag_seconds_max", {}, self._most_lag)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}_{name} {text}"
    yield f"# TYPE {_PREFIX}_{name} {kind}"


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
    return f"{_PREFIX}_{name}{{{shown}}} {value:.10g}" if shown else f"{_PREFIX}_{name} {value:.10g}"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
