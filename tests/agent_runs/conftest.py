"""Empty sites: SQLite with a directory, MongoDB with S3."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from control_tower.agent_runs.site import Site, SiteSettings, open_site
from control_tower.agent_runs.store.tables import TABLES
from control_tower.agent_runs.store.where import EVERY
from tests.support.mongod import Mongod, mongod
from tests.support.s3_server import S3Server

__all__ = ["mongod"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def local_site(tmp_path: Path) -> AsyncGenerator[Site]:
    """SQLite and a directory."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_site(local_settings(tmp_path)))


@pytest.fixture(params=["local", "shared"])
async def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site]:
    """One of each kind."""
    settings = local_settings(tmp_path)
    if request.param == "shared":
        database: Mongod = request.getfixturevalue("mongod")
        logs: S3Server = request.getfixturevalue("s3_server")
        for name, value in logs.environment.items():
            monkeypatch.setenv(name, value)
        settings = SiteSettings("private", tmp_path, f"s3://plain/{uuid4().hex}", database.uri("sites"))
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(settings))
        yield site
        # A database of its own for each test would take a second to get its indexes.
        for table in TABLES if settings.mongo else ():
            await site.store.delete(table, EVERY)


def local_settings(folder: Path) -> SiteSettings:
    return SiteSettings("local", folder / "viewer", str(folder / "viewer" / "blobs"))
