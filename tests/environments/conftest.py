"""What tests of environments share: modules that a test brought are forgotten after it."""

import sys
from collections.abc import Iterator

import pytest

from control_tower.environments import modules


@pytest.fixture(autouse=True)
def forget_imported_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(modules, "_import_folders", [])
    monkeypatch.setattr(modules, "_setting_roots", set())
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    brought = {name: sys.modules[name] for name in set(sys.modules) - before}
    for name in [name for name, m in brought.items() if name.startswith("ct_") or _is_temporary(m)]:
        del sys.modules[name]


def _is_temporary(module: object) -> bool:
    places = [getattr(module, "__file__", None) or "", str(vars(module).get("__path__", ""))]
    return any("pytest-" in place for place in places)
