"""Configuration: environment over `control-tower.toml` over defaults, folders, and secrets kept out of text.

Flags stand above all of these and are the command line's affair. Everything is resolved when it is used,
so a test or a notebook may change the environment at any time.
"""

import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from control_tower.errors import ValidationError, did_you_mean
from control_tower.redactor import Redactor

OPTIONS: dict[str, str] = {
    "cache_dir": "What can be made again. Default: the user's cache folder.",
    "config_dir": "Where `control-tower.toml` is read. Default: the user's configuration folder.",
    "data_dir": "Where runs are kept when no viewer is configured. Default: the user's data folder.",
    "settings_dir": "Folder of settings. Default: `.settings` of the checkout or working folder.",
    "demo": "`off` hides the built-in demo setting.",
    "log_dir": "Where `ct run` writes logs. Default: `logs`.",
    "max_samples": "Samples run at once. Default: the number of cores.",
    "max_retries": "Attempts after a failed model request. Default: 10.",
    "tool_timeout": "Seconds an agent's command may take when its call does not say. Default: 120.",
    "scorer_timeout": "Seconds a task's scorer may take. Default: 600.",
    "fallback_exec_timeout": "Seconds a sandbox call without a limit of its own may take. Default: 1200.",
    "model_rates": "A JSON rate table that goes before the shipped prices.",
    "pricing": "`off` leaves every model unpriced; `api` reads the viewer's table.",
    "api_base_url": "The viewer: its address. Default: the one `ct login` was last used for, else none.",
    "viewer_data": "Folder of `ct viewer serve`. Default: `viewer` in the data folder.",
    "viewer_blobs": "Where the viewer keeps logs: a folder, or `s3://bucket/prefix`. Default: in its folder.",
    "viewer_url": "The viewer's address as its users see it, when a proxy stands before it.",
}
"""What can be configured: `<name>` in the file, `CONTROL_TOWER_<NAME>` in the environment."""

_WHOLE_NUMBERS = {"max_samples", "max_retries", "tool_timeout", "scorer_timeout", "fallback_exec_timeout"}
_FILE = "control-tower.toml"
_NOT_FROM_DOTENV = re.compile(r"CONTROL_TOWER_(API|VIEWER)_")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


@overload
def get(name: str) -> str | None: ...
@overload
def get(name: str, default: str) -> str: ...
def get(name: str, default: str | None = None) -> str | None:
    """The configured value of an option; empty counts as unset.

    Args:
        name: a key of `OPTIONS`.
        default: what to return when it is not configured.

    Raises:
        ValidationError: `control-tower.toml` cannot be read or has an unknown key, or the value should be
            a whole number and is not.
    """
    if name not in OPTIONS:
        raise KeyError(name)
    value = os.environ.get(f"CONTROL_TOWER_{name.upper()}")
    if not value and name != "config_dir":
        value = _file_values().get(name)
    if value and name in _WHOLE_NUMBERS and not value.isdecimal():
        raise ValidationError(f"{name} (CONTROL_TOWER_{name.upper()}) is {value!r}, not a whole number")
    return value or default


def cache_dir() -> Path:
    """Where things are kept that can be made again; not necessarily there yet."""
    return _folder("cache")


def data_dir() -> Path:
    """Where runs are kept when no viewer is configured; not necessarily there yet."""
    return _folder("data")


def config_dir() -> Path:
    """Where `control-tower.toml` is read; not necessarily there yet."""
    return _folder("config")


def load_dotenv() -> Path | None:
    """Add the nearest `.env`, upward from the working folder, below the real environment.

    A viewer's address or token is never taken from it: a cloned repository must not choose where results go.

    Returns:
        The file that was read.
    """
    import dotenv

    folder = Path.cwd()
    file = next((path for parent in (folder, *folder.parents) if (path := parent / ".env").is_file()), None)
    if file is not None:
        for name, value in dotenv.dotenv_values(file).items():
            if value is not None and not _NOT_FROM_DOTENV.match(name):
                os.environ.setdefault(name, value)
    return file


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Mask secrets: the values of environment variables named like keys, and what looks like a secret."""
    return _redactor(frozenset(value for name, value in os.environ.items() if is_secret_name(name))).text(
        text
    )


@lru_cache(maxsize=1)
def _redactor(secrets: frozenset[str]) -> Redactor:
    return Redactor(secrets)


def _folder(kind: str) -> Path:
    import platformdirs

    if configured := get(f"{kind}_dir"):
        return Path(configured).expanduser()
    return Path(getattr(platformdirs, f"user_{kind}_dir")("control-tower", appauthor=False))


def _file_values() -> dict[str, str]:
    file = config_dir() / _FILE
    try:
        with file.open("rb") as stream:
            values: dict[str, Any] = tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValidationError(f"{file} cannot be read: {error}") from error
    for name, value in values.items():
        if name not in OPTIONS or name == "config_dir":
            raise ValidationError(f"{file}: there is no option {name!r}{did_you_mean(name, OPTIONS)}")
        if not isinstance(value, str | int | float):
            raise ValidationError(f"{file}: {name} must be text or a number")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }
