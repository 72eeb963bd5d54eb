"""Under whose name a monitor's calls are recorded while it judges."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from control_tower.monitors.config import MONITOR_ROLE

_asked: ContextVar[str] = ContextVar("monitor", default=MONITOR_ROLE)


def asked_as() -> str:
    """`monitor/<name>` while a monitor judges, else `monitor`."""
    return _asked.get()


@contextmanager
def judging(name: str) -> Generator[None]:
    """Record the calls made meanwhile as those of a monitor."""
    token = _asked.set(f"{MONITOR_ROLE}/{name}")
    try:
        yield
    finally:
        _asked.reset(token)
