"""Finding settings: folders of the settings directory, installed packages, and the built-in demo."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import logging
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dotenv import dotenv_values

from control_tower import config
from control_tower.environments.environment import ControlEnvironment, is_environment
from control_tower.environments.modules import (
    load_file,
    load_module_from_path,
    register_setting_root,
    use_import_folder,
)

ENTRY_POINT_GROUP = "control_tower.settings"
SETTINGS_DIR_VARIABLE = "CONTROL_TOWER_SETTINGS_DIR"
DEMO_VARIABLE = "CONTROL_TOWER_DEMO"
BUILT_IN = "demo"
RESERVED_NAMES = frozenset({"ct", "inspect"})
"""Names whose tool ids would shadow the framework's."""

logger = logging.getLogger(__name__)


class UnloadableEnvironment:
    """Stands in a setting's environments for one whose module failed to import."""

    def __init__(self, env_id: str, error: Exception) -> None:
        self.id = env_id
        self.error = error


@dataclass(frozen=True)
class Setting:
    """A named set of environments."""

    name: str
    path: Path | None
    """Its folder; None for one that an installed package brings."""
    builtin: bool
    environments: Mapping[str, ControlEnvironment]
    errors: Mapping[str, Exception] = field(default_factory=dict[str, Exception])
    """Why environments failed to load, by id; the key is empty for the setting itself."""


def load_settings() -> dict[str, Setting]:
    """All settings by name: those of the settings directory, installed ones, then the built-in demo.

    They are loaded once for a settings directory. A setting that fails to load is listed with its error.
    """
    folder = settings_dir()
    demo_is_on = config.get("demo", "on").strip().lower() not in ("off", "0", "false")
    return dict(_load_settings(folder, demo_is_on))


def forget_settings() -> None:
    """Look for settings again on next use, after one was installed or removed."""
    _load_settings.cache_clear()


@functools.cache
def _load_settings(folder: Path, demo_is_on: bool) -> dict[str, Setting]:
    if config.get("settings_dir") and not folder.is_dir():
        logger.warning("%s names no folder, so that no settings are there: %s", SETTINGS_DIR_VARIABLE, folder)
    settings: dict[str, Setting] = {}
    for setting in (*_folder_settings(folder), *_installed_settings(demo_is_on)):
        if setting.name in RESERVED_NAMES:
            logger.warning("setting '%s' is left out: the name is reserved", setting.name)
        elif setting.name in settings:
            logger.warning("a second setting named '%s' is left out: %s", setting.name, setting.path)
        else:
            settings[setting.name] = setting
    return settings


def settings_dir() -> Path:
    """Where settings are installed.

    `CONTROL_TOWER_SETTINGS_DIR`, else `.settings` of the working folder, else that of the checkout this
    package or the working folder belongs to, else the user's own store. Decided each time it is asked for.
    """
    if named := config.get("settings_dir", "").strip():
        return Path(named).expanduser().resolve()
    if (Path.cwd() / ".settings").is_dir():
        return Path.cwd() / ".settings"
    checkout = _checkout_root(Path(__file__).resolve().parent) or _checkout_root(Path.cwd())
    local = (checkout or Path.cwd()) / ".settings"
    store = _user_store()
    return local if local.is_dir() or not store.is_dir() else store


def _user_store() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(cache) if cache else Path.home() / ".cache") / "control-tower" / "settings"


@functools.cache
def _checkout_root(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        pyproject = folder / "pyproject.toml"
        if pyproject.is_file() and _project_table(pyproject, "project").get("name") == "control-tower":
            return folder
    return None


def _project_table(pyproject: Path, *keys: str) -> dict[str, Any]:
    """A table of a `pyproject.toml`; empty when the file or the table is not there or not readable."""
    try:
        table: Any = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}
    for key in keys:
        table = cast(dict[str, Any], table).get(key)
        if not isinstance(table, dict):
            return {}
    return cast(dict[str, Any], table)


def setting_folders(folder: Path) -> Iterator[Path]:
    """The settings below a directory: the descent stops at the first `setting.py`."""
    if not folder.is_dir():
        return
    for child in sorted(folder.iterdir()):
        if child.name.startswith((".", "_")) or child.name.endswith("_idea") or not child.is_dir():
            continue
        if (child / "setting.py").is_file():
            yield child
        elif not (child / "pyproject.toml").is_file():
            yield from setting_folders(child)


def setting_name(folder: Path) -> str:
    """The name that a setting's `pyproject.toml` declares, else its folder's."""
    declared: object = _project_table(folder / "pyproject.toml", "tool", "control_tower").get("name")
    return declared if isinstance(declared, str) and declared else folder.name


def _folder_settings(folder: Path) -> Iterator[Setting]:
    for path in setting_folders(folder):
        yield _load(setting_name(path), path, False, functools.partial(_environments_of_folder, path))


def _installed_settings(demo_is_on: bool) -> Iterator[Setting]:
    points = sorted(
        importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (p.name == BUILT_IN, p.name)
    )
    for point in points:
        builtin = point.name == BUILT_IN and point.module.partition(".")[0] == __name__.partition(".")[0]
        if builtin and not demo_is_on:
            continue
        yield _load(point.name, None, builtin, functools.partial(_environments_of_entry_point, point))


def _environments_of_folder(path: Path) -> object:
    register_setting_root(path)
    _load_dotenv(path / ".env")
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    module = load_file(path / "setting.py", f"ct_setting_{digest}")
    return _get_environments(vars(module).get("get_environments"))


def _environments_of_entry_point(point: importlib.metadata.EntryPoint) -> object:
    return _get_environments(point.load())


def _get_environments(function: object) -> object:
    if not callable(function):
        raise TypeError("setting.py must define get_environments() -> dict of environments by id")
    return function()


def _load(name: str, path: Path | None, builtin: bool, read: Callable[[], object]) -> Setting:
    environments: dict[str, ControlEnvironment] = {}
    errors: dict[str, Exception] = {}
    try:
        found = read()
        if not isinstance(found, Mapping):
            raise TypeError(f"get_environments() gave a {type(found).__name__}, not a dict")
        for key, env in cast(Mapping[Any, object], found).items():
            if isinstance(env, UnloadableEnvironment):
                errors[str(key)] = env.error
            elif is_environment(env):
                environment = cast(ControlEnvironment, env)
                if environment.id != key:
                    raise ValueError(f"environment '{environment.id}' is given under the name '{key}'")
                environments[str(key)] = environment
            else:
                errors[str(key)] = TypeError(f"{type(env).__name__} lacks members of an environment")
    except Exception as error:  # noqa: BLE001 - an author's module may raise anything; the rest must go on
        errors[""] = error
    for env_id, error in errors.items():
        label = f"environment '{env_id}' of setting" if env_id else "setting"
        logger.warning("%s '%s' is left out: %s: %s", label, name, type(error).__name__, error)
    return Setting(name, path, builtin, environments, errors)


def _load_dotenv(path: Path) -> None:
    """A setting's own variables; they never replace one that is set, nor configure this tool."""
    for name, value in dotenv_values(path).items() if path.is_file() else ():
        if value is not None and not name.startswith("CONTROL_TOWER_"):
            os.environ.setdefault(name, value)


def discover_envs_from_subdirs(folder: str | Path) -> dict[str, Any]:
    """The environments of a folder's sub-folders, by id; for a setting's `get_environments`.

    Each sub-folder with an `__init__.py` is imported; the environment is whichever object of the module is
    one, whatever it is called. Sub-folders without an environment are skipped; one that fails to import
    is in the result as an `UnloadableEnvironment`.
    """
    folder = Path(folder).resolve()
    found: dict[str, Any] = {}
    if not folder.is_dir():
        return found
    use_import_folder(folder)
    for child in sorted(folder.iterdir()):
        if child.name.startswith((".", "_")) or child.name.endswith("_idea"):
            continue
        if (child / "__init__.py").is_file():
            for env in _environments_of_package(child):
                found[env.id] = env
    return found


def _environments_of_package(path: Path) -> list[ControlEnvironment | UnloadableEnvironment]:
    try:
        module = load_module_from_path(path)
    except Exception as error:  # noqa: BLE001 - one broken environment must not take the others along
        return [UnloadableEnvironment(path.name, error)]
    unique: dict[int, ControlEnvironment] = {
        id(value): cast(ControlEnvironment, value) for value in vars(module).values() if is_environment(value)
    }
    return list(unique.values())
