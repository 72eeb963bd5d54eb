"""The file of tokens: for which viewer a token is, who can read it, and that nothing in it is lost."""

import json
import multiprocessing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.client.origins import base_of, check_secure, origin
from control_tower.client.tokens import (
    Credentials,
    KeptToken,
    check_token,
    credentials,
    forget_token,
    keep_token,
    kept_token,
    read_tokens,
)
from control_tower.errors import OperationError, UsageError, ValidationError

A, B = "https://a.example", "https://b.example"
GIVEN = "a-token-of-another-kind"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tokens are kept."""
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("CONTROL_TOWER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "config"


def _older(tmp_path: Path, url: str, token: str = "older") -> Path:
    file = tmp_path / "cache" / "auth" / "token.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"url": url, "token": token}))
    return file


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.example", "https://a.example:443/runs/1"),
        ("http://a.example:80", "http://a.example/"),
        ("https://A.Example", "https://a.example."),
        ("https://a.example", "https://user:secret@a.example"),
        ("http://localhost:8642", "http://127.0.0.1:8642"),
        ("http://[::1]:8642", "http://LOCALHOST:8642/x"),
    ],
)
def test_addresses_of_one_viewer(one: str, other: str) -> None:
    assert origin(one) == origin(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.example", "http://a.example"),
        ("https://a.example", "https://a.example:8443"),
        ("https://a.example", "https://b.a.example"),
        ("https://a.example", "https://a.example@evil.example"),
        ("https://a.example", "https://a.example.evil.example"),
        ("http://localhost:1", "http://127.0.0.1:2"),
        ("http://127.0.0.1:1", "http://127.0.0.2:1"),
    ],
)
def test_addresses_of_two_viewers(one: str, other: str) -> None:
    assert origin(one) != origin(other)
    keep_token(KeptToken(one, "secret"))
    found = credentials(other)
    assert found
    assert found.token is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://a.example:x",
        "https://.",
        "file:///etc/passwd",
        "https://ä.example",
        "https://a.example\n",
    ],
)
def test_what_is_no_address_of_a_viewer_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a viewer"):
        origin(url)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for url in (text, f"https://{text}"):
        try:
            found = origin(url)
        except UsageError:
            continue
        assert origin(found) == found
        assert origin(base_of(url)) == found


def test_an_address_is_written_in_one_way() -> None:
    assert base_of("HTTPS://u:p@A.example.:443/ct//") == "https://a.example/ct"
    assert base_of("http://[::1]:8642/") == "http://[::1]:8642"
    assert base_of("https://a.example/ct?x=1#y") == "https://a.example/ct"


def test_nobody_is_logged_in_at_first() -> None:
    assert credentials() is None
    assert credentials(A) == Credentials(A)


def test_each_viewer_has_its_token_and_the_last_one_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_token(KeptToken(A, "ta"))
    keep_token(KeptToken(B, "tb"))
    assert credentials() == Credentials(B, "tb")
    assert credentials(A + "/") == Credentials(A, "ta")
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", A)
    assert credentials() == Credentials(A, "ta")
    forget_token(B + ":443")
    assert credentials(B) == Credentials(B)
    assert read_tokens().default is None
    forget_token(B)


def test_a_token_of_the_environment_is_for_the_configured_viewer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_token(KeptToken(A, "ta"))
    keep_token(KeptToken(B, "tb"))
    monkeypatch.setenv("CONTROL_TOWER_API_TOKEN", GIVEN)
    with pytest.raises(UsageError, match="CONTROL_TOWER_API_BASE_URL"):
        credentials()
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", A)
    assert credentials() == Credentials(A, GIVEN)
    assert credentials(B) == Credentials(B, "tb")
    monkeypatch.setenv("CONTROL_TOWER_API_TOKEN", "")
    assert credentials() == Credentials(A, "ta")


@pytest.mark.parametrize("token", ["two words", "täken", "ct_0123456789_short", "a\x00b"])
def test_what_is_no_token_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(UsageError, match=r"^stdin: ") as refused:
        check_token(token, "stdin")
    assert token not in str(refused.value)
    with pytest.raises(UsageError, match=r"^stdin: "):
        check_token(" \n", "stdin")


def test_tokens_do_not_travel_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = "http://a.example"
    assert credentials(plain) == Credentials(plain)
    keep_token(KeptToken(plain, "ta"))
    with pytest.raises(UsageError, match="without TLS"):
        credentials(plain)
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", plain)
    monkeypatch.setenv("CONTROL_TOWER_API_TOKEN", GIVEN)
    with pytest.raises(UsageError, match="without TLS"):
        credentials()
    keep_token(KeptToken(plain, "ta", insecure=True))
    assert credentials() == Credentials(plain, GIVEN)
    for safe in (A, "http://localhost:1", "http://[::1]:1"):
        check_secure(safe, allowed=False)


def test_only_the_user_can_read_the_file(folder: Path) -> None:
    keep_token(KeptToken(A, "ta", "ann", ("runs:read",), "2100-01-01T00:00:00Z"))
    file = folder / "tokens.json"
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert [path.name for path in folder.iterdir()] == ["tokens.json"]
    assert kept_token(A) == KeptToken(A, "ta", "ann", ("runs:read",), "2100-01-01T00:00:00Z")
    assert "ta" not in repr(KeptToken("", "ta")) + repr(Credentials("", "ta"))


def test_a_file_that_others_could_read_is_closed_to_them(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_token(KeptToken(A, "ta"))
    (folder / "tokens.json").chmod(0o644)
    folder.chmod(0o777)
    assert credentials() == Credentials(A, "ta")
    assert "could be read by others" in caplog.text
    assert (folder / "tokens.json").stat().st_mode & 0o777 == 0o600
    keep_token(KeptToken(B, "tb"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_is_never_followed(folder: Path, tmp_path: Path) -> None:
    keep_token(KeptToken(A, "ta"))
    file, target = folder / "tokens.json", tmp_path / "target"
    file.rename(target)
    before = target.read_bytes()
    file.symlink_to(target)
    with pytest.raises(OperationError, match=r"tokens\.json cannot be read"):
        credentials()
    with pytest.raises(OperationError):
        keep_token(KeptToken(B, "tb"))
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"default": null, "hosts": []}', '{"default": null, "hosts": {"a": {}}}', "null"],
)
def test_a_damaged_file_is_neither_read_nor_overwritten(folder: Path, text: str) -> None:
    folder.mkdir(mode=0o700)
    file = folder / "tokens.json"
    file.write_text(text)
    for work in (credentials, lambda: keep_token(KeptToken(A, "ta"))):
        with pytest.raises(ValidationError, match=r"tokens\.json is damaged: delete it"):
            work()
    assert file.read_text() == text


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    folder.parent.joinpath("config").write_text("a file")
    with pytest.raises(OperationError, match=r"tokens\.json cannot be"):
        keep_token(KeptToken(A, "ta"))


def _keep(number: int, barrier: object) -> None:
    barrier.wait()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    keep_token(KeptToken(f"https://v{number}.example", f"t{number}"))


def test_logins_at_the_same_time_are_all_kept() -> None:
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(8)
    processes = [fork.Process(target=_keep, args=(number, barrier)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert {kept.token for kept in read_tokens().hosts.values()} == {f"t{number}" for number in range(8)}


def test_the_token_of_an_older_client_is_read_and_its_file_left(tmp_path: Path) -> None:
    file = _older(tmp_path, "http://127.0.0.1:9/")
    before = file.read_bytes()
    assert credentials() is None
    assert credentials("http://localhost:9") == Credentials("http://localhost:9", "older")
    assert credentials(A) == Credentials(A)
    keep_token(KeptToken("http://localhost:9", "ours"))
    assert credentials("http://127.0.0.1:9") == Credentials("http://127.0.0.1:9", "ours")
    forget_token("http://localhost:9")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "[]", '{"url": 1, "token": 2}', '{"token": "x"}', '{"url": "x", "token": "x"}']
)
def test_a_damaged_file_of_an_older_client_counts_as_none(tmp_path: Path, text: str) -> None:
    _older(tmp_path, A).write_text(text)
    assert credentials(A) == Credentials(A)


@pytest.mark.parametrize(
    ("days", "said"), [(15, ""), (13, "ends in 13 days"), (0.5, "ends within a day"), (-1, "has ended")]
)
def test_the_end_of_a_token_is_said_two_weeks_before(
    days: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    ends = datetime.now(UTC) + timedelta(days=days, minutes=1)
    keep_token(KeptToken(A, "secret-token", expires=ends.isoformat()))
    assert credentials() == Credentials(A, "secret-token")
    assert said in caplog.text
    assert bool(caplog.text) == bool(said)
    assert "secret-token" not in caplog.text
