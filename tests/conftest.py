"""A clean surrounding for every test: no user's keys, settings, configuration or log folder."""

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server

_NOT_OURS = (
    "CONTROL_TOWER_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "OPENROUTER_",
    "INSPECT_",
    "USE_OPENROUTER",
)


if not os.environ.get("CI"):
    # In CI it has a profile of its own, with the same examples every time.
    settings.register_profile("slow machines", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("slow machines")


@pytest.fixture(autouse=True, scope="session")
def _clean_surrounding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("surrounding")
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(_NOT_OURS):
            del os.environ[name]
    for kind in ("CONFIG", "CACHE", "DATA"):
        os.environ[f"CONTROL_TOWER_{kind}_DIR"] = str(folder / kind.lower())
    os.environ["INSPECT_LOG_DIR"] = str(folder / "logs")
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["S3Server"]:
    """An S3 server with the buckets `plain` and `versions`; clients need its `environment`."""
    from tests.support.s3_server import serving

    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


_DOCKER = {name: os.environ.get(name) for name in ("CT_BASE_IMAGE", "DOCKER_HOST")}
_NO_DOCKER = {"CT_BASE_IMAGE": None, "DOCKER_HOST": "unix:///there-is-no-docker-here"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only tests of Docker find it: `auto` would choose it in others, or ask it for images that it lacks."""
    for name, value in (_DOCKER if item.get_closest_marker("docker") else _NO_DOCKER).items():
        if value == os.environ.get(name):
            continue
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
        if probe := sys.modules.get("control_tower.sandbox.docker_probe"):
            probe.docker_problem.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that needs Docker must run: skipping it is a failure."""
    report = yield
    if report.skipped and os.environ.get("CI") and item.get_closest_marker("docker"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {call.excinfo.value if call.excinfo else report.longrepr}"
    return report
