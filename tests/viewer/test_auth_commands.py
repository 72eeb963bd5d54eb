"""`ct login` and its kin against a private viewer that runs as its own process."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from control_tower.cli.app import main
from tests.support.viewer_server import ADMIN, CT, PASSWORD, ServedViewer, served_viewer

PROBE = "/api/eval-logs/head?filename=control-tower-credential-check.eval"


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: object
    out: str
    err: str


Ct = Callable[..., Done]


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServedViewer]:
    with served_viewer(tmp_path_factory.mktemp("viewer")) as viewer:
        yield viewer


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of tokens of a user who has none yet."""
    folder = tmp_path / "config"
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(folder))
    monkeypatch.setenv("CONTROL_TOWER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CONTROL_TOWER_DATA_DIR", str(tmp_path / "data"))
    return folder


@pytest.fixture
def ct(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ct:
    """Runs `ct` in this process."""

    def run(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        shown = capsys.readouterr()
        return Done(ended.value.code, shown.out, shown.err)

    return run


def _kept(config: Path) -> str:
    (kept,) = json.loads((config / "tokens.json").read_text())["hosts"].values()
    return kept["token"]


def _status(viewer: ServedViewer, path: str, token: str) -> int:
    return httpx.get(viewer.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code


def _paste(viewer: ServedViewer, ct: Ct) -> str:
    """Logs in with a token, which unlike a password may be done at any pace."""
    token = viewer.manage("token", "create", ADMIN, "--description", "pasted")
    assert ct("login", viewer.url, "--token-stdin", stdin=token).code == 0
    return token


def _user(viewer: ServedViewer, name: str, role: str) -> None:
    viewer.manage("user", "add", name, "--role", role, password=PASSWORD)


def test_a_login_by_password_is_known_until_logged_out(viewer: ServedViewer, ct: Ct, config: Path) -> None:
    done = ct("login", viewer.url, "-u", ADMIN, "--description", "here", stdin=PASSWORD + "\n")
    assert (done.code, done.out) == (0, "")
    assert f"logged in to {viewer.url} as {ADMIN} (runs:read, runs:write)" in done.err
    token = _kept(config)
    assert (config / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert config.stat().st_mode & 0o777 == 0o700

    who = json.loads(ct("whoami", "--format", "json").out)
    assert (who["viewer"], who["name"], who["role"]) == (viewer.url, ADMIN, "admin")
    (mine,) = [
        each for each in json.loads(ct("tokens", "list", "--format", "json").out) if each["label"] == "here"
    ]
    assert mine["id"] == who["token_id"]

    assert ct("logout", "--revoke").code == 0
    assert _status(viewer, PROBE, token) == 401
    assert json.loads((config / "tokens.json").read_text()) == {"default": None, "hosts": {}}
    assert "not logged in" in ct("logout").err


def test_a_wrong_password_keeps_nothing(viewer: ServedViewer, ct: Ct, config: Path) -> None:
    done = ct("login", viewer.url, "-u", "nobody", stdin="not the password\n")
    assert (done.code, done.err) == (1, f"Error: {viewer.url}: the user name or the password is wrong\n")
    assert ct("login", viewer.url, "-u", "nobody").code == 2
    assert not (config / "tokens.json").exists()


def test_a_token_is_pasted_once_the_viewer_takes_it(viewer: ServedViewer, ct: Ct, config: Path) -> None:
    viewer.manage("user", "add", "bot", "--service")
    token = viewer.manage(
        "token", "create", "bot", "--description", "paste", "--days", "0", "--scope", "runs:read"
    )
    for wrong, code in (
        (token[:-1], 2),
        (token[:20] + ("y" if token[20] == "x" else "x") + token[21:], 2),
        ("", 2),
        ("other_kind_of_token", 1),
    ):
        assert ct("login", viewer.url, "--token-stdin", stdin=wrong).code == code
        assert not (config / "tokens.json").exists()
    assert ct("login", "--url", viewer.url, "--token-stdin", stdin=f" {token}\n").code == 0
    assert _kept(config) == token
    assert json.loads(ct("whoami", "--format", "json").out)["expires"] is None


def test_a_revoked_token_and_a_lowered_role_count_at_the_next_request(viewer: ServedViewer) -> None:
    _user(viewer, "writer", "member")
    token = viewer.manage("token", "create", "writer", "--description", "x")
    assert _status(viewer, PROBE, token) == 404
    viewer.manage("user", "role", "writer", "reader")
    assert _status(viewer, PROBE, token) == 403
    assert _status(viewer, "/api/runs", token) == 200
    viewer.manage("user", "disable", "writer")
    assert _status(viewer, "/api/runs", token) == 401
    viewer.manage("user", "disable", "writer", "--undo")
    assert _status(viewer, "/api/runs", token) == 200
    viewer.manage("token", "revoke", token.split("_")[1])
    assert _status(viewer, "/api/runs", token) == 401


def test_a_token_made_by_a_command_is_the_only_line_on_stdout(viewer: ServedViewer, ct: Ct) -> None:
    _paste(viewer, ct)
    made = ct("tokens", "create", "--description", "ci", "--scope", "runs:read", "--days", "3")
    assert _status(viewer, PROBE, made.out.strip()) == 403
    assert ct("tokens", "revoke", made.out.split("_")[1]).code == 0
    assert _status(viewer, "/api/runs", made.out.strip()) == 401
    missing = ct("tokens", "revoke", "0123456789")
    assert (missing.code, "there is no token '0123456789'" in missing.err) == (1, True)
    assert ct("tokens", "create", "--description", "x", "--scope", "runs:reed").code == 1


def test_a_netrc_entry_never_replaces_the_token(
    viewer: ServedViewer, ct: Ct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login {ADMIN} password wrong\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    _paste(viewer, ct)
    assert ct("whoami").code == 0
    assert ct("logout", "--revoke").code == 0


def test_a_token_from_the_environment_is_for_the_configured_viewer(
    viewer: ServedViewer, ct: Ct, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = viewer.manage("token", "create", ADMIN, "--description", "environment")
    monkeypatch.setenv("CONTROL_TOWER_API_TOKEN", token)
    refused = ct("whoami")
    assert (refused.code, "CONTROL_TOWER_API_BASE_URL" in refused.err) == (2, True)
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", viewer.url)
    assert json.loads(ct("whoami", "--format", "json").out)["name"] == ADMIN
    monkeypatch.setenv("CONTROL_TOWER_API_BASE_URL", "https://viewer.example")
    elsewhere = ct("whoami", "--url", viewer.url)
    assert (elsewhere.code, "there is no token for this viewer" in elsewhere.err) == (1, True)


def test_what_excludes_each_other_or_is_not_safe_is_refused(ct: Ct) -> None:
    for words in (
        ("login",),
        ("login", "https://a.example", "--url", "https://b.example"),
        ("login", "https://a.example", "-u", "x", "--device"),
        ("login", "viewer.example"),
        ("login", "http://viewer.example", "-u", "x"),
        ("login", "http://viewer.example"),
        ("login", "http://viewer.example", "--token-stdin"),
    ):
        assert ct(*words, stdin="a_token_of_some_kind").code == 2, words


def test_no_secret_is_in_the_store_or_in_the_log_of_the_server(viewer: ServedViewer, ct: Ct) -> None:
    secret = _paste(viewer, ct).split("_")[2]
    ct("whoami")
    files = [path for path in viewer.folder.rglob("*") if path.is_file()]
    assert any(path.name == "runs.sqlite" for path in files)
    for path in files:
        written = path.read_bytes()
        assert secret.encode() not in written, path
        assert PASSWORD.encode() not in written, path


def test_a_list_of_users_and_tokens_shows_no_hash(viewer: ServedViewer) -> None:
    users = json.loads(viewer.manage("user", "list", "--format", "json"))
    assert {"name", "role", "disabled", "service", "created"} == set(users[0])
    viewer.manage("token", "create", ADMIN, "--description", "listed")
    tokens = json.loads(viewer.manage("token", "list", "--user", ADMIN, "--format", "json"))
    assert {each["owner"] for each in tokens} == {ADMIN}
    assert "sha256" not in str(tokens)


def test_a_new_password_is_read_from_stdin(viewer: ServedViewer, ct: Ct) -> None:
    _user(viewer, "pat", "member")
    viewer.manage("user", "password", "pat", password="quite another")
    assert ct("login", viewer.url, "-u", "pat", stdin=PASSWORD).code == 1
    assert ct("login", viewer.url, "-u", "pat", stdin="quite another").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("approve", [True, False])
def test_a_login_is_approved_in_a_browser_elsewhere(
    viewer: ServedViewer, config: Path, approve: bool
) -> None:
    process = subprocess.Popen(
        [CT, "login", viewer.url, "--device", "--description", "cluster"],
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    code = process.stderr.readline().split()[-1]
    viewer.decide(code, approve=approve)
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == (0 if approve else 1)
    assert (f"as {ADMIN}" if approve else "the login was denied") in said
    assert (config / "tokens.json").exists() == approve
