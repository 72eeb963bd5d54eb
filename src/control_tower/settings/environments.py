"""Environments of all settings by name: `<setting>/<env>`, or `<env>` where only one has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from control_tower.environments.environment import ControlEnvironment
from control_tower.errors import StateError, UsageError, did_you_mean
from control_tower.settings.discovery import Setting, load_settings

OVERRIDE = "local"
"""The setting name of environments in `ENVIRONMENTS`."""

ENVIRONMENTS: dict[str, ControlEnvironment] = {}
"""Environments added by code, by id, looked up at call time before all settings; tests patch it."""


@dataclass(frozen=True)
class FoundEnvironment:
    """An environment with its full name."""

    id: str
    """`<setting>/<env>`, as logs record it."""
    setting: str
    env: ControlEnvironment
    builtin: bool = False


def all_environments() -> list[FoundEnvironment]:
    """Every environment, the built-in demo's last."""
    added = [FoundEnvironment(f"{OVERRIDE}/{key}", OVERRIDE, env) for key, env in ENVIRONMENTS.items()]
    return added + [
        FoundEnvironment(f"{setting.name}/{key}", setting.name, env, setting.builtin)
        for setting in load_settings().values()
        for key, env in setting.environments.items()
    ]


def find_environment(name: str) -> FoundEnvironment:
    """The environment of a full or bare name; hyphens and underscores are not told apart.

    A bare name that the demo has too means the other setting's.

    Raises:
        UsageError: unknown, or several settings have it.
        StateError: the environment, or its setting, is there but does not load.
    """
    return _choose(name, all_environments())


def _choose(name: str, known: list[FoundEnvironment]) -> FoundEnvironment:
    matches = _matching(name, known)
    if len({found.setting for found in matches}) > 1:
        added = [found for found in matches if found.setting == OVERRIDE]
        matches = added or [found for found in matches if not found.builtin]
    if len(matches) == 1 and not (matches[0].builtin and name != matches[0].id):
        return matches[0]
    if len(matches) < 2:
        # A broken environment of an installed setting is never replaced by the demo's of that name.
        _raise_if_broken(name, load_settings().values())
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(
            f"environment '{name}' is in several settings; name one: "
            + ", ".join(found.id for found in matches)
        )
    names = [found.id for found in known] if "/" in name else [bare_name(found.id) for found in known]
    raise UsageError(f"no environment '{name}'{did_you_mean(name, names)}")


def _matching(name: str, known: list[FoundEnvironment]) -> list[FoundEnvironment]:
    exact = [found for found in known if name in (found.id, bare_name(found.id))]
    return exact or [
        found for found in known if _plain(name) in (_plain(found.id), _plain(bare_name(found.id)))
    ]


def _raise_if_broken(name: str, settings: Iterable[Setting]) -> None:
    setting_name, _, env_id = name.rpartition("/")
    for setting in settings:
        if setting_name and _plain(setting.name) != _plain(setting_name):
            continue
        errors = {_plain(key): error for key, error in setting.errors.items()}
        error = errors.get(_plain(env_id)) or (errors.get("") if setting_name else None)
        if error is not None:
            raise StateError(
                f"environment '{name}' does not load: {type(error).__name__}: {error}"
            ) from error


def bare_name(env_id: str) -> str:
    """An environment's id without its setting's name."""
    return env_id.rsplit("/", 1)[-1]


def _plain(name: str) -> str:
    return name.replace("-", "_")
