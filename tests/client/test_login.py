"""Logins against viewers that wait, fail, misbehave or are of an older kind."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from control_tower.client.login import DeviceLogin, by_device, by_password, by_token
from control_tower.client.tokens import KeptToken, read_tokens
from control_tower.errors import OperationError, StateError
from tests.client.stub import Answer, Asked, json_answer, stub

STARTED = {
    "device_code": "secret",
    "user_code": "BCDF-GHJK",
    "verification_uri": "https://viewer.example/device",
    "verification_uri_complete": "https://viewer.example/device?user_code=BCDF-GHJK",
    "expires_in": 600,
    "interval": 5,
}
MADE = json_answer({"token": "new-token"})
WHO = json_answer({"name": "ann", "scopes": ["runs:read"], "expires": "2100-01-01T00:00:00Z"})


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path / "config"))


def _waiting(code: str) -> Answer:
    return json_answer({"code": code, "error": f"it is {code}"}, 400)


def _device(
    answers: Iterable[Answer], started: Any = STARTED
) -> tuple[KeptToken, list[float], list[DeviceLogin]]:
    """Logs in at a viewer that answers questions for the token one after the other."""
    left, waited, shown = iter(answers), list[float](), list[DeviceLogin]()

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/device/token"):
            assert json.loads(asked.body) == {"device_code": "secret"}
            return next(left)
        return WHO if asked.path.endswith("/whoami") else json_answer(started)

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with stub(answer) as viewer:
        kept = asyncio.run(by_device(viewer.url, shown.append, description="here", sleep=sleep))
        assert viewer.asked[-1].token == "Bearer new-token"
        assert all(each.token is None for each in viewer.asked[:-1])
    return kept, waited, shown


def test_a_login_waits_as_it_is_told_and_through_failures() -> None:
    answers = [
        _waiting("authorization_pending"),
        _waiting("slow_down"),
        Answer(503, b"away"),
        Answer(body=None),
        _waiting("authorization_pending"),
        MADE,
    ]
    kept, waited, shown = _device(answers)
    assert waited == [5, 5, 10, 10, 10, 10]
    assert [each.user_code for each in shown] == ["BCDF-GHJK"]
    assert "secret" not in repr(shown)
    assert (kept.token, kept.user, kept.scopes) == ("new-token", "ann", ("runs:read",))
    assert list(read_tokens().hosts.values()) == [kept]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("access_denied", "was denied"),
        ("expired_token", "not approved in time"),
        ("bad_request", "it is bad_request"),
    ],
)
def test_a_login_that_was_refused_ends(code: str, said: str) -> None:
    with pytest.raises(StateError, match=said):
        _device([_waiting("authorization_pending"), _waiting(code)])
    assert not read_tokens().hosts


@pytest.mark.parametrize(
    "wrong",
    [
        {"user_code": "A\x1b[2J"},
        {"user_code": None},
        {"device_code": 1},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri_complete": "file:///etc/passwd"},
        {"expires_in": 0},
        {"expires_in": 1e300},
        {"interval": 0},
        {"interval": "5"},
        {"interval": None},
    ],
)
def test_a_viewer_that_misbehaves_is_not_followed(wrong: dict[str, Any]) -> None:
    from control_tower.errors import ExpectedError

    with pytest.raises(ExpectedError):
        _device([MADE], {**STARTED, **wrong})
    assert not read_tokens().hosts


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b'{"token": ""}', b'{"token": "a\\nb"}', b"<html>"]
)
def test_an_answer_without_a_token_is_no_login(body: bytes) -> None:
    with (
        stub(lambda _: Answer(body=body)) as viewer,
        pytest.raises(OperationError, match=r"is this a viewer|not that of"),
    ):
        asyncio.run(by_password(viewer.url, "ann", "password", description=None))
    assert not read_tokens().hosts


def test_a_token_that_the_viewer_refuses_is_not_kept() -> None:
    with stub(lambda _: json_answer({"error": "no"}, 401)) as viewer, pytest.raises(StateError) as refused:
        asyncio.run(by_token(viewer.url, "some-token"))
    assert "some-token" not in str(refused.value)
    assert not read_tokens().hosts


def test_a_viewer_of_an_older_kind_is_logged_in_to_by_password() -> None:
    def answer(asked: Asked) -> Answer:
        return MADE if asked.path == "/api/auth/login" else Answer(404)

    with stub(answer) as viewer:
        with pytest.raises(StateError, match="only knows logins by password: ct login -u"):
            asyncio.run(by_device(viewer.url, lambda _: None, description=None))
        kept = asyncio.run(by_password(viewer.url, "ann", "password", description=None))
        sent = json.loads(next(each.body for each in viewer.asked if each.path == "/api/auth/login"))
    assert sent == {"username": "ann", "password": "password"}
    assert (kept.user, kept.token, kept.scopes) == ("ann", "new-token", ())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_password_goes_to_no_other_viewer(status: int) -> None:
    with stub(lambda _: MADE) as other:
        elsewhere = {"Location": f"{other.url}/api/auth/login"}
        with (
            stub(lambda _: Answer(status, b"", elsewhere)) as viewer,
            pytest.raises(OperationError, match="elsewhere"),
        ):
            asyncio.run(by_password(viewer.url, "ann", "password", description=None))
        assert not other.asked
        assert len(viewer.asked) == 1
