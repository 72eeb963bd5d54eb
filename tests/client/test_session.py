"""Calls to a viewer: repeated where that helps, its token for it alone, refusals with the way out."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from control_tower.agent_runs.accounts.token_text import new_token
from control_tower.client import session
from control_tower.client.session import NotThere, open_viewer
from control_tower.client.transport import AppTransport
from control_tower.errors import ExpectedError, OperationError, StateError, UsageError, ValidationError
from tests.client.stub import Answer, Asked, json_answer, stub

_, TOKEN = new_token()


@pytest.fixture(autouse=True)
def _surrounding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("CONTROL_TOWER_API_TOKEN", TOKEN)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited; nothing really is."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(session.asyncio, "sleep", sleep)
    return waited


def call(url: str, method: str = "GET", path: str = "/api/x", **more: Any) -> httpx.Response:
    async def work() -> httpx.Response:
        async with open_viewer(more.pop("named", None)) as viewer:
            return await viewer.call(method, path, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTROL_TOWER_API_BASE_URL", url)
        return asyncio.run(work())


@pytest.mark.parametrize("trouble", [408, 425, 429, 500, 502, 503, 504, None])
def test_what_may_pass_is_tried_again(trouble: int | None, pauses: list[float]) -> None:
    def answer(asked: Asked) -> Answer:
        if len(viewer.asked) == 2 and not trouble:
            return Answer(body=b"{", headers={"Content-Length": "50"})
        if len(viewer.asked) < 3:
            return Answer(trouble) if trouble else Answer(body=None)
        return json_answer({"body": asked.body.decode()})

    async def body() -> AsyncIterator[bytes]:
        yield b"all "
        yield b"of it"

    with stub(answer) as viewer:
        assert call(viewer.url, "PUT", content=body).json() == {"body": "all of it"}
    assert len(viewer.asked) == 3
    assert 0.25 <= pauses[0] <= 0.5 <= pauses[1] <= 1


def test_what_may_do_harm_twice_is_not(pauses: list[float]) -> None:
    with stub(lambda asked: Answer(503)) as viewer, pytest.raises(OperationError, match="503"):
        call(viewer.url, "POST", again=False)
    assert (len(viewer.asked), pauses) == (1, [])


def test_an_end_of_trying_is_an_error_that_names_the_viewer(pauses: list[float]) -> None:
    with stub(lambda asked: Answer(body=None)) as viewer, pytest.raises(OperationError, match=viewer.url):
        call(viewer.url)
    assert len(viewer.asked) == session.ATTEMPTS == len(pauses) + 1


def _date(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("asked_for", "least", "most"),
    [("7", 7, 7.25), (30, 5, 30.25), ("100000", 60, 60.25), ("soon", 0.25, 0.5), (-50, 0, 0.5)],
)
def test_a_viewer_says_when_to_come_again(
    asked_for: str | int, least: float, most: float, pauses: list[float]
) -> None:
    after = asked_for if isinstance(asked_for, str) else _date(asked_for)

    def answer(asked: Asked) -> Answer:
        return Answer(429, headers={"Retry-After": after}) if len(viewer.asked) == 1 else Answer()

    with stub(answer) as viewer:
        call(viewer.url)
    assert least <= pauses[0] <= most


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, StateError, ("ct login", "CONTROL_TOWER_API_TOKEN")),
        (403, StateError, ("because", "ct whoami")),
        (404, NotThere, ("because",)),
        (400, ValidationError, ("because",)),
        (422, ValidationError, ("because",)),
        (409, StateError, ("because",)),
        (412, StateError, ("because",)),
        (507, OperationError, ("because",)),
    ],
)
def test_refusals_say_why_and_what_to_do(
    status: int, kind: type[ExpectedError], words: tuple[str, ...], pauses: list[float]
) -> None:
    refusal = json_answer({"error": "because"}, status)
    with stub(lambda asked: refusal) as viewer, pytest.raises(kind) as refused:
        call(viewer.url)
    assert [word for word in words if word not in str(refused.value)] == []
    assert TOKEN not in str(refused.value)
    assert (len(viewer.asked), pauses) == (1, [])


def test_a_proxy_s_page_is_no_viewer_s_answer(pauses: list[float]) -> None:
    page = Answer(418, b"<html>" + b"x" * 5000)
    with stub(lambda asked: page) as viewer, pytest.raises(OperationError) as refused:
        call(viewer.url)
    assert len(str(refused.value)) < 200


def test_the_token_goes_to_its_viewer_only() -> None:
    with stub(lambda asked: json_answer({})) as other:
        elsewhere = Answer(302, headers={"Location": f"{other.url}/signed"})
        here = Answer(307, headers={"Location": "/there"})
        answers = {"/api/x": elsewhere, "/api/y": here}
        with stub(lambda asked: answers.get(asked.path, Answer())) as viewer:
            call(viewer.url)
            call(viewer.url, path="/api/y")
            call(viewer.url, named=other.url)
    assert [asked.token for asked in viewer.asked] == [f"Bearer {TOKEN}"] * 3
    assert [asked.token for asked in other.asked] == [None, None]


def test_netrc_never_replaces_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with stub(lambda asked: json_answer({})) as viewer:
        call(viewer.url)
        monkeypatch.delenv("CONTROL_TOWER_API_TOKEN")
        call(viewer.url)
    assert [asked.token for asked in viewer.asked] == [f"Bearer {TOKEN}", None]


def test_proxies_stand_before_other_machines_but_not_before_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTROL_TOWER_API_TOKEN")
    with (
        stub(lambda asked: json_answer({"by": "proxy"})) as proxy,
        stub(lambda asked: json_answer({})) as viewer,
    ):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert call(viewer.url).json() == {}
        assert call("http://viewer.invalid").json() == {"by": "proxy"}


def test_neither_tokens_nor_bodies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with stub(lambda asked: json_answer({"answer": "private-words"})) as viewer:
        call(viewer.url, "POST", json={"question": "secret-words"})
    assert caplog.text
    assert [word for word in (TOKEN, "private-words", "secret-words") if word in caplog.text] == []


def test_a_token_without_a_viewer_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with open_viewer():
            pass

    monkeypatch.delenv("CONTROL_TOWER_API_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="CONTROL_TOWER_API_BASE_URL"):
        asyncio.run(work())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


app = FastAPI()


@app.post("/digest")
async def digest(request: Request) -> dict[str, Any]:
    found, pieces = hashlib.sha256(), 0
    async for piece in request.stream():
        found.update(piece)
        pieces += bool(piece)
    return {"sha256": found.hexdigest(), "pieces": pieces}


made: list[int] = []


@app.get("/numbers")
async def numbers() -> StreamingResponse:
    def each() -> Iterator[bytes]:
        for number in range(1000):
            made.append(number)
            yield b"%d\n" % number

    return StreamingResponse(each())


@app.get("/breaks")
async def breaks() -> None:
    raise ZeroDivisionError("in the application")


@pytest.mark.anyio
async def test_an_application_in_process_streams_both_ways() -> None:
    in_process = AppTransport(cast(Any, app))
    async with httpx.AsyncClient(transport=in_process, base_url="http://localhost") as client:
        pieces = [base64.b64encode(bytes([n]) * 1000) for n in range(50)]

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        told = (await client.post("/digest", content=body())).json()
        assert told == {"sha256": hashlib.sha256(b"".join(pieces)).hexdigest(), "pieces": 50}

        made.clear()
        async with client.stream("GET", "/numbers") as answer:
            lines = answer.aiter_lines()
            assert [await anext(lines) for _ in range(3)] == ["0", "1", "2"]
        assert len(made) < 20, "nobody reads on, so nothing more is made"
        assert len((await client.get("/numbers")).text.splitlines()) == 1000


@pytest.mark.anyio
async def test_what_an_application_in_process_raises_is_raised() -> None:
    in_process = AppTransport(cast(Any, app))
    async with httpx.AsyncClient(transport=in_process, base_url="http://localhost") as client:
        with pytest.raises(ZeroDivisionError, match="in the application"):
            await client.get("/breaks")
        assert (await client.get("/none")).status_code == 404
