"""A settings directory of a test's own."""

from pathlib import Path

import pytest

from control_tower.settings import discovery
from tests.environments.conftest import forget_imported_modules

__all__ = ["forget_imported_modules", "settings_folder"]


@pytest.fixture
def settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty settings directory, without the demo."""
    folder = tmp_path / "settings"
    folder.mkdir()
    monkeypatch.setenv(discovery.SETTINGS_DIR_VARIABLE, str(folder))
    monkeypatch.setenv(discovery.DEMO_VARIABLE, "off")
    return folder
