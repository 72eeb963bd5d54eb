"""A clean surrounding for every test: no user's keys, settings, configuration or log folder."""

import os
from collections.abc import Generator, Iterator

import pytest

_NOT_OURS = (
    "CONTROL_TOWER_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "OPENROUTER_",
    "INSPECT_",
    "USE_OPENROUTER",
)


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


_BASE_IMAGE = os.environ.get("CT_BASE_IMAGE")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only tests of Docker know the base image: with it, `auto` would choose Docker, which is slow."""
    if _BASE_IMAGE and item.get_closest_marker("docker"):
        os.environ["CT_BASE_IMAGE"] = _BASE_IMAGE
    else:
        os.environ.pop("CT_BASE_IMAGE", None)


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
