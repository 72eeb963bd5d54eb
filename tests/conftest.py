"""A clean surrounding for every test: no user's keys, settings, configuration or log folder."""

import os
from collections.abc import Iterator

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
