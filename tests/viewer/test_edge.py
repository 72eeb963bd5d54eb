"""What holds for every request: refusals as problems, headers, hosts, sizes, paces, the log, the counts."""

import asyncio
import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from control_tower.agent_runs.errors import TooMany
from control_tower.agent_runs.runs import Runs
from control_tower.errors import OperationError
from control_tower.storage.s3 import S3Blobs
from control_tower.viewer.limits import LONGEST_DELAY, Limits, Pace
from control_tower.viewer.strict import json_answer
from tests.agent_runs import sites
from tests.viewer.auth_house import log_in, private_viewer
from tests.viewer.conftest import Kept
from tests.viewer.house import House, upload

PATCH = "/api/v1/runs/x"
JSON = {"Content-Type": "application/json"}


class TestProblems:
    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/nowhere", 404, "not_found"),
            ("GET", "/api/v1/nowhere", 404, "not_found"),
            ("GET", "/api/v1/runs/nope", 404, "not_found"),
            ("POST", "/api/v1/whoami", 405, "method_not_allowed"),
            ("GET", "/api/v1/runs/%00", 400, "bad_request"),
            ("GET", "/api/v1/runs?limit=x", 400, "bad_request"),
            ("GET", "/api/v1/runs/" + "x" * 129, 400, "bad_request"),
        ],
    )
    def test_every_refusal_says_which_it_is(
        self, kept: Kept, method: str, path: str, status: int, code: str
    ) -> None:
        answer = kept.client.request(method, path)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["status"]) == (status, code, status)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["error"] == problem["detail"] != ""
        assert problem["request_id"] == answer.headers["X-Request-Id"]
        assert kept.client.head(path).content == b""

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"\xff",
            b'{"name": NaN}',
            b'{"name": 1e999}',
            b"[" * 70 + b"]" * 70,
            b"[" * 100_000,
            b"[]",
            b"",
        ],
    )
    def test_bodies_that_are_no_strict_json(self, kept: Kept, body: bytes) -> None:
        answer = kept.client.patch(PATCH, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert (
            kept.client.patch(PATCH, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 400
        )

    def test_what_is_wrong_is_named_without_repeating_it(self, kept: Kept) -> None:
        answer = kept.client.post("/api/auth/login", json={"username": "ann", "password": ["hunter2"]})
        assert "password" in answer.json()["detail"]
        assert "hunter2" not in answer.text

    def test_a_store_that_is_away_asks_to_come_again(
        self, own: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(*_: object) -> None:
            raise OperationError("mongodb://ann:hunter2@db cannot be reached")

        monkeypatch.setattr(Runs, "list", away)
        answer = own.client.get("/api/v1/runs")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert "hunter2" not in answer.text

    def test_a_defect_shows_nothing_of_itself(self, own: House, monkeypatch: pytest.MonkeyPatch) -> None:
        async def broken(*_: object) -> None:
            raise KeyError("secret")

        monkeypatch.setattr(Runs, "list", broken)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        asking = own.app(_request("GET", "/api/v1/runs"), receive, send)
        with pytest.raises(KeyError):  # for the server's log
            asyncio.run(asking)
        start, body = sent
        assert (start["status"], json.loads(body["body"])["code"]) == (500, "internal_error")
        assert b"secret" not in body["body"]
        assert (b"x-content-type-options", b"nosniff") in start["headers"]


class TestHeaders:
    @pytest.mark.parametrize(
        "path", ["/healthz", "/nowhere", "/api/v1/runs", "/api/v1/runs/nope", "/metrics"]
    )
    def test_every_answer_is_locked_down(self, kept: Kept, path: str) -> None:
        headers = kept.client.get(path).headers
        assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "private, no-cache"
        assert not any(name.startswith("access-control") for name in headers)
        assert "text/html" not in headers["Content-Type"]

    def test_numbers_that_are_not_finite_are_null_and_counted(self) -> None:
        answer = json_answer({"a": [math.nan, 1.5, -math.inf], "b": {"c": math.inf}})
        assert bytes(answer.body) == b'{"a":[null,1.5,null],"b":{"c":null}}'
        assert answer.headers["X-CT-Nonfinite"] == "3"
        assert "X-CT-Nonfinite" not in json_answer({"a": 0.0}).headers


class TestHosts:
    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8642", "127.0.0.1", "[::1]:80", "localhost."])
    def test_names_of_this_machine(self, kept: Kept, host: str) -> None:
        assert kept.client.get("/api/v1/whoami", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "", "[evil]"]
    )
    def test_a_name_that_was_made_to_point_here_is_refused(self, kept: Kept, host: str) -> None:
        answer = kept.client.get("/api/v1/whoami", headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")

    def test_repeated_slashes_count_once(self, kept: Kept) -> None:
        assert kept.client.get("http://localhost:8642//api//v1///whoami").status_code == 200

    @pytest.mark.parametrize("path", ["/ct/healthz", "/healthz", "/ct//healthz"])
    def test_below_a_path_of_a_proxy_that_strips_it_or_not(self, tmp_path: Path, path: str) -> None:
        with private_viewer(tmp_path, url="https://viewer.example/ct") as viewer:
            answer = viewer.browser().get(f"https://viewer.example{path}")
            assert answer.status_code == 200
            assert answer.headers["Strict-Transport-Security"]
            assert viewer.browser().get("https://viewer.example/ctx/healthz").status_code == 404


class TestSizes:
    def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(self, kept: Kept) -> None:
        body = b'{"name": "' + b"x" * 1024**2 + b'"}'

        def chunks() -> Any:
            for start in range(0, len(body), 100_000):
                yield body[start : start + 100_000]

        for content in (body, chunks()):
            answer = kept.client.patch(PATCH, content=content, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (413, "content_too_large")
            assert answer.headers["Content-Type"] == "application/problem+json"


class TestPaces:
    @given(
        rate=st.floats(0.5, 100),
        burst=st.integers(1, 20),
        pauses=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    )
    @settings(max_examples=50, deadline=None)
    def test_what_gets_through_is_within_the_pace(self, rate: float, burst: int, pauses: list[float]) -> None:
        """In any stretch of time no more than the burst and what the rate gives; nobody waits too long."""
        now, passed = [0.0], []
        limits = Limits(clock=lambda: now[0])

        async def sleep(seconds: float) -> None:
            assert seconds <= LONGEST_DELAY + 1e-6
            passed[-1] += seconds

        async def asking() -> None:
            for pause in pauses:
                now[0] += pause
                passed.append(now[0])
                try:
                    await limits.keep(Pace("tests", rate, burst), "ann")
                except TooMany as error:
                    passed.pop()
                    assert error.retry_after > LONGEST_DELAY

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("control_tower.viewer.limits.asyncio.sleep", sleep)
            asyncio.run(asking())
        for first in range(len(passed)):
            for last in range(first, len(passed)):
                most = burst + rate * (passed[last] - passed[first])
                assert last - first + 1 <= most + 1e-6

    def test_users_do_not_wait_for_each_other(self) -> None:
        limits = Limits(clock=lambda: 0.0)
        pace = Pace("tests", 0.1, 1)

        async def asking() -> None:
            await limits.keep(pace, "ann")
            await limits.keep(pace, "bob")
            with pytest.raises(TooMany):
                await limits.keep(pace, "ann")

        asyncio.run(asking())

    def test_places_are_given_back(self) -> None:
        limits = Limits()
        kind = ("tests", 1, 0.05)

        async def asking() -> None:
            async with limits.place(kind, "ann"):
                with pytest.raises(TooMany, match="at most 1 at once"):
                    async with limits.place(kind, "ann"):
                        pass
                async with limits.place(kind, "bob"):
                    pass
            async with limits.place(kind, "ann"):
                pass

        asyncio.run(asking())

    def test_strangers_are_slowed_down_and_users_are_not(self, tmp_path: Path) -> None:
        with private_viewer(tmp_path) as viewer:
            viewer.add("ann")
            token = viewer.token("ann")
            stranger, ann = viewer.browser("192.0.2.7"), viewer.browser("192.0.2.7")
            refused = [stranger.get("/api/v1/runs") for _ in range(20)]
            assert {answer.status_code for answer in refused} == {401}
            assert refused[0].headers["WWW-Authenticate"].startswith("Bearer")
            viewer.app.state.limits._due["requests without a login", "192.0.2.7"] += 60
            slowed = stranger.get("/api/v1/runs")
            assert (slowed.status_code, int(slowed.headers["Retry-After"]) > 1) == (429, True)
            assert [ann.get("/api/v1/runs", headers=token).status_code for _ in range(5)] == [200] * 5


class TestLog:
    def test_a_line_a_request_without_secrets_or_control_characters(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        from control_tower.viewer.serve import _Lines

        caplog.set_level(logging.INFO, "control_tower.viewer.access")
        kept.client.get("/blobs/out/x%0a%1b[31m.eval?exp=1&sig=hunter2", headers={"User-Agent": "a\x1bb"})
        record = next(each for each in caplog.records if each.name == "control_tower.viewer.access")
        line = _Lines().format(record)
        assert line.isascii() and line.isprintable()
        assert "hunter2" not in line
        told = json.loads(line)
        assert (told["method"], told["query"]) == ("GET", "exp=1&sig=***")
        assert told["status"] in (400, 404)

    def test_an_upload_that_its_client_ends_is_no_failure_of_the_viewer(self, own: House) -> None:
        asked = {"sha256": "0" * 64, "size": 9, "filename": "x.eval"}
        plan = own.client.post("/api/v1/uploads", json=asked).json()
        path = f"/api/v1/uploads/{plan['upload_id']}/parts/1"
        coming = iter([{"type": "http.request", "body": b"abc", "more_body": True}])

        async def receive() -> Any:
            return next(coming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            raise AssertionError(f"{message} is sent to nobody")

        headers = [(b"host", b"localhost:8642"), (b"content-length", b"9")]
        scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode(), "headers": headers}
        scope |= {
            "query_string": b"",
            "scheme": "http",
            "client": ("127.0.0.1", 5),
            "server": ("localhost", 1),
        }
        asyncio.run(own.app(scope, receive, send))
        assert 'parts/{number}",status="0"} 1\n' in own.client.get("/metrics").text

    def test_counts_for_prometheus(self, own: House, tmp_path: Path) -> None:
        run_id = upload(own.client, sites.log(tmp_path / "log.eval"))["run_id"]
        own.client.get(f"/api/v1/runs/{run_id}")
        own.client.get("/api/v1/runs/nope")
        own.client.request("INVENTED", "/healthz")
        text = own.client.get("/metrics").text
        assert 'requests_total{method="GET",route="/api/v1/runs/{run_id}",status="200"} 1\n' in text
        assert 'requests_total{method="GET",route="/api/v1/runs/{run_id}",status="404"} 1\n' in text
        assert 'request_seconds_count{route="/api/v1/runs/{run_id}"} 2\n' in text
        assert 'uploaded_total{what="run"} 1\n' in text
        assert "loop_lag_seconds" in text
        assert run_id not in text
        assert "INVENTED" not in text

    def test_they_are_for_this_machine_and_for_admins(self, tmp_path: Path) -> None:
        with private_viewer(tmp_path) as viewer:
            viewer.add("ann")
            viewer.add("root", "admin")
            assert viewer.browser("127.0.0.1").get("/metrics").status_code == 200
            through_proxy = {"X-Forwarded-For": "192.0.2.1"}
            assert viewer.browser("127.0.0.1").get("/metrics", headers=through_proxy).status_code == 401
            assert viewer.browser().get("/metrics").status_code == 401
            assert viewer.browser().get("/metrics", headers=viewer.token("ann")).status_code == 403
            admin = viewer.browser()
            log_in(admin, "root")
            assert admin.get("/metrics").status_code == 200

    def test_health_needs_no_login(self, tmp_path: Path) -> None:
        with private_viewer(tmp_path) as viewer:
            assert viewer.browser().get("/healthz").json() == {"status": "ok"}
            assert viewer.browser().get("/readyz").json() == {"status": "ok"}

    def test_it_is_not_ready_while_its_logs_cannot_be_reached(self, own: House) -> None:
        class Away:
            def head_object(self, **_: Any) -> Any:
                raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")

        own.app.state.site = replace(own.site, blobs=S3Blobs("s3://logs", Away()))
        assert own.client.get("/readyz").status_code == 503
        assert own.client.get("/healthz").status_code == 200


def _request(method: str, path: str) -> dict[str, Any]:
    """A request as servers hand it to an application."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
