"""A private viewer in this process, with users in it, and a browser to use it with."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from fastapi.testclient import TestClient

from control_tower.agent_runs.accounts.users import add_user
from control_tower.agent_runs.actor import Role
from control_tower.agent_runs.site import Mode, Site, SiteSettings, open_site
from control_tower.agent_runs.store.interface import Row, Table
from control_tower.viewer.app import create_app

T = TypeVar("T")

PASSWORD = "correct horse"
URL = "https://viewer.example"


class Viewer:
    """A viewer with its store, and a clock that only moves when told."""

    def __init__(self, site: Site, mode: Mode, url: str) -> None:
        self.now = 1_800_000_000.0
        self.site = replace(site, now=lambda: self.now, settings=replace(site.settings, mode=mode))
        self.url = url
        self.app = create_app(self.site)

    def browser(self, address: str = "192.0.2.1") -> TestClient:
        """Somebody who has not logged in yet."""
        client = TestClient(self.app, self.url, client=(address, 1234), follow_redirects=False)
        client.headers["Origin"] = self.url
        return client

    def call(self, function: Callable[..., Awaitable[T]], *args: object, **kwargs: object) -> T:
        """Calls a function of accounts, with the store and the time."""

        async def work() -> T:
            return await function(self.site.store, self.now, *args, **kwargs)

        return asyncio.run(work())

    def rows(self, table: Table) -> list[Row]:
        """All rows of a table."""
        return asyncio.run(self.site.store.find(table))

    def add(self, name: str, role: Role = "member") -> None:
        """Adds a user."""
        self.call(add_user, name, role, PASSWORD)

    def token(self, name: str) -> dict[str, str]:
        """The header of requests by a token of a user."""
        answer = self.browser().post("/api/auth/login", json={"username": name, "password": PASSWORD})
        return {"Authorization": f"Bearer {answer.json()['token']}"}


@contextmanager
def private_viewer(folder: Path, *, mode: Mode = "private", url: str = URL) -> Generator[Viewer]:
    """Opens a viewer in a folder."""
    loop = asyncio.new_event_loop()
    public = url if mode == "private" else None
    opening = open_site(SiteSettings(mode, folder, str(folder / "blobs"), public_url=public))
    site = loop.run_until_complete(opening.__aenter__())
    try:
        yield Viewer(site, mode, url)
    finally:
        loop.run_until_complete(opening.__aexit__(None, None, None))
        loop.close()


def field(page: Any, name: str) -> str:
    """What a page's form says in a hidden field."""
    found = re.search(f'name="{name}" value="([^"]*)"', page.text)
    assert found, page.text
    return found[1]


def log_in(browser: TestClient, name: str, password: str = PASSWORD, path: str = "/login") -> Any:
    """Fills the form of a login page."""
    page = browser.get(path)
    data = {"username": name, "password": password, "next": field(page, "next")}
    return browser.post("/login", data={**data, "form_token": field(page, "form_token")})


def send(browser: TestClient, path: str, **fields: str) -> Any:
    """Sends a form from the page that it is on."""
    form_token = field(browser.get("/settings/tokens"), "form_token")
    return browser.post(path, data={**fields, "form_token": form_token})


def code_of(answer: Any) -> str:
    """The code of a refusal."""
    return cast("dict[str, Any]", answer.json())["code"]
