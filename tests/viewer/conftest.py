"""Viewers that tests of a module share, as long as they only read."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.agent_runs import sites
from tests.viewer.house import House, house, trajectory_ids, upload


@dataclass(frozen=True)
class Kept:
    """A viewer with one run of `sites.THREE`."""

    house: House
    client: TestClient
    log: Path
    run_id: str
    ids: list[str]
    """Of its trajectories: honest, attack, errored."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Generator[Kept]:
    """Is not to be changed."""
    folder = tmp_path_factory.mktemp("viewer")
    log = sites.log(folder / "log.eval")
    with house(folder / "data") as made:
        run_id = upload(made.client, log)["run_id"]
        yield Kept(made, made.client, log, run_id, trajectory_ids(made.client, run_id))


@pytest.fixture
def own(tmp_path: Path) -> Generator[House]:
    """An empty viewer."""
    with house(tmp_path / "data") as made:
        yield made
