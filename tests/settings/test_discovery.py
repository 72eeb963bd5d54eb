"""Which settings are found, and what happens to those that are broken."""

import os
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from control_tower.settings import discovery
from control_tower.settings.discovery import discover_envs_from_subdirs, load_settings, settings_dir
from tests.environments.authoring import write, write_env, write_main, write_setting

CODE_SETTING = """
from code_package.envs import CodeEnvironment

def get_environments():
    env = CodeEnvironment()
    return {env.id: env}
"""
CODE_ENVS = """
from control_tower.environments.protocol import EnvDocs
from control_tower.environments.space import CrossProduct

class CodeEnvironment:
    id = "coded"
    display_name = "Coded"
    custom_tools = None

    def docs(self, args=None):
        return EnvDocs(description="d")

    def get_sandbox_spec(self, codebase_name="default", args=None):
        raise NotImplementedError

    def task_space(self, args=None):
        return CrossProduct({}, {})
"""


def test_settings_of_folders_and_code_are_found_where_they_stop(settings_folder: Path) -> None:
    write_setting(settings_folder, "first", "env_a", "env-b")
    nested = write_setting(settings_folder / "owner", "repo", "env_c")
    write(nested / "package" / "setting.py", "raise RuntimeError('not the setting')\n")
    code = settings_folder / "code"
    write(code / "setting.py", CODE_SETTING)
    write(code / "code_package" / "envs.py", CODE_ENVS)
    write(code / "code_package" / "setting.py", "raise RuntimeError('not the setting')\n")
    write(settings_folder / "notes_idea" / "setting.py", "raise RuntimeError\n")
    write(settings_folder / ".hidden" / "setting.py", "raise RuntimeError\n")
    settings = load_settings()
    assert {name: sorted(setting.environments) for name, setting in settings.items()} == {
        "code": ["coded"],
        "first": ["env-b", "env_a"],
        "repo": ["env_c"],
    }
    assert not any(setting.errors or setting.builtin for setting in settings.values())
    [combination, attack] = list(settings["first"].environments["env-b"].task_space())
    assert combination.main_task is not None and combination.main_task.environment == "env-b"
    assert attack.mode == "attack"


def test_a_declared_name_wins_over_the_folders(settings_folder: Path) -> None:
    folder = write_setting(settings_folder, "ct-thing", "env_d")
    write(folder / "pyproject.toml", '[tool.control_tower]\nname = "thing"\n')
    assert set(load_settings()) == {"thing"}


def test_what_is_broken_is_left_out_with_its_error(
    settings_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_setting(settings_folder, "half", "good_env")
    write(write_env(folder / "bad_env") / "__init__.py", "import no_such_package\n")
    write(folder / "no_env" / "__init__.py", "x = 1\n")
    write(settings_folder / "broken" / "setting.py", "1 / 0\n")
    write(settings_folder / "empty" / "setting.py", "x = 1\n")
    write(settings_folder / "odd" / "setting.py", "def get_environments():\n    return {'x': 3}\n")
    write_setting(settings_folder, "ct", "reserved_env")
    settings = load_settings()
    assert set(settings["half"].environments) == {"good_env"}
    assert isinstance(settings["half"].errors["bad_env"], ModuleNotFoundError)
    assert isinstance(settings["broken"].errors[""], ZeroDivisionError)
    assert "get_environments" in str(settings["empty"].errors[""])
    assert "lacks members" in str(settings["odd"].errors["x"])
    assert "ct" not in settings
    assert "no_such_package" in caplog.text and "reserved" in caplog.text


def test_the_directory_is_read_when_it_is_needed(
    settings_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings() == {}
    other = tmp_path / "other"
    write_setting(other, "later", "env_e")
    monkeypatch.setenv(discovery.SETTINGS_DIR_VARIABLE, str(other))
    assert set(load_settings()) == {"later"}
    monkeypatch.setenv(discovery.SETTINGS_DIR_VARIABLE, str(settings_folder))
    write_setting(settings_folder, "new", "env_f")
    discovery.forget_settings()
    assert set(load_settings()) == {"new"}


def test_where_settings_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(discovery.SETTINGS_DIR_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(discovery, "_checkout_root", lambda start: None)
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "cache" / "control-tower" / "settings"
    assert settings_dir() == tmp_path / ".settings"
    store.mkdir(parents=True)
    assert settings_dir() == store
    (tmp_path / ".settings").mkdir()
    assert settings_dir() == tmp_path / ".settings"


def test_a_settings_variables_replace_none_and_configure_nothing(
    settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_setting(settings_folder, "vars", "env_g")
    write(folder / ".env", "CT_TEST_NEW=1\nCT_TEST_SET=1\nCONTROL_TOWER_API_BASE_URL=http://evil.test\n")
    monkeypatch.setenv("CT_TEST_SET", "mine")
    monkeypatch.delenv("CT_TEST_NEW", raising=False)
    monkeypatch.delenv("CONTROL_TOWER_API_BASE_URL", raising=False)
    load_settings()
    assert os.environ.pop("CT_TEST_NEW") == "1"
    assert os.environ["CT_TEST_SET"] == "mine"
    assert "CONTROL_TOWER_API_BASE_URL" not in os.environ


def test_installed_packages_bring_settings(settings_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings_folder.parent / "installed"
    write(folder / "installed_ct" / "envs.py", CODE_ENVS)
    write(folder / "installed_ct" / "__init__.py", CODE_SETTING.replace("code_package", "installed_ct"))
    monkeypatch.syspath_prepend(str(folder))
    points = [
        EntryPoint("demo", "control_tower.demo:get_environments", discovery.ENTRY_POINT_GROUP),
        EntryPoint("theirs", "installed_ct:get_environments", discovery.ENTRY_POINT_GROUP),
        EntryPoint("absent", "not_there:get_environments", discovery.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    discovery.forget_settings()
    settings = load_settings()
    assert list(settings) == ["absent", "theirs"]
    assert set(settings["theirs"].environments) == {"coded"}
    assert isinstance(settings["absent"].errors[""], ModuleNotFoundError)
    monkeypatch.delenv(discovery.DEMO_VARIABLE)
    assert list(load_settings())[-1] == "demo"
    assert load_settings()["demo"].builtin
    discovery.forget_settings()


def test_environments_of_sub_folders(tmp_path: Path) -> None:
    assert discover_envs_from_subdirs(tmp_path / "missing") == {}
    folder = write_setting(tmp_path, "some", "gitea-platform")
    write_main(folder / "_private", "build")
    found: dict[str, Any] = discover_envs_from_subdirs(folder)
    assert list(found) == ["gitea-platform"]
    assert found["gitea-platform"].path == folder / "gitea-platform"
    assert found["gitea-platform"].task_space().get("build", "leak").mode == "attack"


def test_a_settings_folder_that_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(discovery.SETTINGS_DIR_VARIABLE, str(tmp_path / "nowhere"))
    load_settings()
    assert f"names no folder, so that no settings are there: {tmp_path / 'nowhere'}" in caplog.text
