"""The whole API against its own description, with requests that nobody would think of."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS

from control_tower.agent_runs.site import Mode
from tests.agent_runs import sites
from tests.viewer.auth_house import URL as PUBLIC
from tests.viewer.auth_house import private_viewer
from tests.viewer.house import URL, trajectory_ids, upload

EXAMPLES = 15

_LOOKED_AT = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@schemathesis.serializer("application/x-ndjson")
def _lines(_: Any, value: str) -> bytes:
    return str(value).encode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "private"])
def test_no_request_fails_the_server_or_is_answered_in_another_shape(mode: Mode, tmp_path: Path) -> None:
    url = URL if mode == "local" else PUBLIC
    with private_viewer(tmp_path, mode=mode, url=url) as viewer:
        client = TestClient(viewer.app, url, raise_server_exceptions=False, follow_redirects=False)
        if mode == "private":
            viewer.add("root", "admin")
            client.headers.update(viewer.token("root"))
        run_id = upload(client, sites.log(tmp_path / "log.eval"))["run_id"]
        real = {"run_id": [run_id], "trajectory_id": trajectory_ids(client, run_id)}
        schema: Any = schemathesis.openapi.from_dict(client.get("/api/openapi.json").json())
        operations = [each.ok() for each in schema.get_all_operations()]
        assert len(operations) > 40
        for operation in operations:
            _try(client, operation, real)
        assert client.get("/readyz").status_code == 200


def _try(client: TestClient, operation: Any, real: dict[str, list[str]]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), existing=st.sampled_from([0, 1, 2]))
    def trying(case: Any, existing: int) -> None:
        for name, ids in real.items():
            if existing and name in (case.path_parameters or {}):
                case.path_parameters[name] = ids[existing % len(ids)]
        asked = case.as_transport_kwargs(base_url=str(client.base_url))
        asked.pop("cookies", None)
        if isinstance(asked.get("data"), str | bytes):
            asked["content"] = asked.pop("data")
        answer = schemathesis.Response.from_any(client.request(**asked))
        case.validate_response(answer, checks=[CHECKS.get_one(name) for name in _LOOKED_AT])

    trying()
