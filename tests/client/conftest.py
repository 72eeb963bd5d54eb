"""A user without any viewer configured, and logs."""

from pathlib import Path

import pytest

from tests.agent_runs.sites import header, sample
from tests.client.using import User
from tests.logs.log_making import write_log


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> User:
    """Keeps runs in a folder of the test."""
    own = {f"CONTROL_TOWER_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
    return User(tmp_path / "work", capsys, own)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three samples: two honest ones and an attack that succeeded."""
    samples = [
        sample("a", main=1.0, scores=[10, 90]),
        sample("b", main=0.0, scores=[20]),
        sample("c", main=1.0, sides=("steal",), side=1.0, scores=[70, "unscored"]),
    ]
    return write_log(tmp_path / "three.eval", header(), samples)
