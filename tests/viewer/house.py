"""A viewer without login in this process, with runs in it."""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from control_tower.logs.json_text import JsonObject
from tests.agent_runs import sites
from tests.viewer.auth_house import Viewer, private_viewer

URL = "http://localhost:8642"


class House(Viewer):
    """A viewer on the user's own machine."""

    @property
    def client(self) -> TestClient:
        """Its user."""
        return TestClient(
            self.app,
            URL,
            client=("127.0.0.1", 5),
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
        )


@contextmanager
def house(folder: Path) -> Generator[House]:
    """Opens a viewer without login in a folder."""
    with private_viewer(folder, mode="local", url=URL) as viewer:
        viewer.__class__ = House
        yield viewer


def upload(
    client: TestClient, log: Path, given: Sequence[JsonObject] | None = None, **more: Any
) -> JsonObject:
    """Makes a run of a log, as our client does; `given` is what it says of the samples."""
    data = log.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    asked = {"sha256": sha256, "size": len(data), "filename": log.name}
    plan = client.post("/api/v1/uploads", json=asked).json()
    if not plan["exists"]:
        assert client.put(f"/api/v1/uploads/{plan['upload_id']}/parts/1", content=data).status_code == 204
        assert client.post(f"/api/v1/uploads/{plan['upload_id']}/complete").status_code == 200
    lines = sites.lines({"sha256": sha256, **more}, sites.documents(log) if given is None else given)
    answer = client.post("/api/v1/runs", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def trajectory_ids(client: TestClient, run_id: str) -> list[str]:
    """Of a run, in the order of its log."""
    rows = client.get(f"/api/v1/runs/{run_id}/trajectories").json()["items"]
    return [row["trajectory_id"] for row in rows]
