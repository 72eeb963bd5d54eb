"""A real log written by Inspect, made once."""

from pathlib import Path

import pytest

from tests.logs.small_evals import run_eval


@pytest.fixture(scope="session")
def inspect_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished log of samples "a1", "a2" and "b/3" in two epochs; a2's second one errored."""
    log = run_eval(tmp_path_factory.mktemp("inspect"), ["a1", "a2", "b/3"], epochs=2, fail=("a2/2",))
    return Path(log.location.removeprefix("file://"))
