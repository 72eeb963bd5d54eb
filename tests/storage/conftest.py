"""Both stores of blobs, empty and open."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from control_tower.storage.directory import DirectoryBlobs
from control_tower.storage.s3 import S3Blobs
from control_tower.storage.s3_object import make_client
from tests.storage.opened import Opened, address_of
from tests.support.s3_server import S3Server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def s3_client(s3_server: S3Server) -> Any:
    """As the product makes one, which takes half a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        return make_client()


@pytest.fixture(params=["directory", "s3", pytest.param("s3 with versions", marks=pytest.mark.slow)])
async def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Opened]:
    """An empty store."""
    address = address_of(request.param, tmp_path_factory)
    server: S3Server | None = None
    if request.param == "directory":
        blobs = DirectoryBlobs(address)
    else:
        server = request.getfixturevalue("s3_server")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        blobs = S3Blobs(address, request.getfixturevalue("s3_client"))
    yield Opened(request.param, address, blobs, server)
    await blobs.close()
