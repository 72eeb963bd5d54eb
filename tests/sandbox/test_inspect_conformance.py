"""Inspect's own checks of what a sandbox must do, run on ours."""

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox import self_check

from tests.sandbox.conftest import PLAIN, sample

pytestmark = pytest.mark.anyio

_SLOW = ("test_exec_timeout_kills_process", "test_exec_timeout_kills_child_processes")
for _name in self_check.__all__:
    _check = getattr(self_check, _name)
    globals()[_name] = pytest.mark.slow(_check) if _name in _SLOW else _check

_ONLY_ROOT = "there is no other user than root"
_NO_ROOT_FOLDER = "absolute paths of files are below the sample's folder, those in commands are the host's"
_CANNOT = {
    "bwrap": {"test_exec_as_user": _ONLY_ROOT},
    "process": {
        "test_exec_as_user": _ONLY_ROOT,
        "test_read_file_not_allowed": "the host's root may read everything",
        "test_write_text_file_without_permissions": "the host's root may write everything",
        "test_write_binary_file_without_permissions": "the host's root may write everything",
        "test_read_file_is_directory": _NO_ROOT_FOLDER,
        "test_cwd_custom": _NO_ROOT_FOLDER,
        "test_cwd_absolute": _NO_ROOT_FOLDER,
    },
}


@pytest.fixture(params=["bwrap", "process"], scope="module")
async def shared(
    request: pytest.FixtureRequest, anyio_backend: str
) -> AsyncIterator[tuple[str, SandboxEnvironment]]:
    async with sample(request.param, PLAIN) as machines:
        yield request.param, machines["default"]


@pytest.fixture
def sandbox_env(request: pytest.FixtureRequest, shared: tuple[str, SandboxEnvironment]) -> SandboxEnvironment:
    name, machine = shared
    if reason := _CANNOT[name].get(request.node.originalname):
        pytest.skip(reason)
    return machine
