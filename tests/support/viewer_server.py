"""A viewer as its own process, started by `ct viewer serve` on a free port, and a browser for its pages."""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

CT = str(Path(sys.executable).with_name("ct"))
ADMIN = "boss"
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class ServedViewer:
    """A private viewer that runs; its admin is `ADMIN`."""

    url: str
    folder: Path
    """Of its rows and logs, and its log `stderr`."""
    environment: Mapping[str, str]
    """What it was started with."""

    def manage(self, *words: str, password: str | None = None) -> str:
        """`ct viewer ...` on the viewer's own store; what it prints on stdout."""
        done = subprocess.run(
            [CT, "viewer", *words],
            input=None if password is None else password + "\n",
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def browser(self, user: str = ADMIN, password: str = PASSWORD) -> Generator[httpx.Client]:
        """Logs in on the viewer's page."""
        with httpx.Client(
            base_url=self.url, headers={"Origin": self.url}, trust_env=False, timeout=60
        ) as client:
            form = {"username": user, "password": password, "form_token": form_token(client.get("/login"))}
            assert client.post("/login", data=form).status_code == 303
            yield client

    def decide(self, code: str, user: str = ADMIN, password: str = PASSWORD, *, approve: bool = True) -> None:
        """Approves or denies a login from elsewhere, on the viewer's page."""
        with self.browser(user, password) as client:
            page = client.get("/device", params={"user_code": code})
            form = {"user_code": code, "form_token": form_token(page)}
            answer = client.post("/device", data={**form, "decision": "approve" if approve else "deny"})
            assert answer.status_code == 200, answer.text


def form_token(page: httpx.Response) -> str:
    """What the forms of a page must send back."""
    found = re.search('name="form_token" value="([^"]*)"', page.text)
    assert found, page.text
    return found[1]


@contextmanager
def served_viewer(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
    inside: Sequence[str] = (),
) -> Generator[ServedViewer]:
    """Starts a private viewer, and ends it afterwards.

    Args:
        folder: Of its rows, logs and configuration.
        host: Address to listen on.
        environment: More of it.
        inside: Words before the command, as `ip netns exec`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        **os.environ,
        "CONTROL_TOWER_DATA_DIR": str(folder / "data"),
        "CONTROL_TOWER_CONFIG_DIR": str(folder / "config"),
        "CONTROL_TOWER_API_AUTH_USERNAME": ADMIN,
        "CONTROL_TOWER_API_AUTH_PASSWORD": PASSWORD,
        **(environment or {}),
    }
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [*inside, CT, "viewer", "serve", "--host", host, "--port", "0"],
            env=own,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            assert process.stdout
            line = process.stdout.readline()
            url = re.search(r"http://\S+", line)
            assert url, line + (folder / "stderr").read_text()
            yield ServedViewer(url[0], folder, own)
        finally:
            process.terminate()
            process.wait(40)
            assert process.stdout
            process.stdout.close()
