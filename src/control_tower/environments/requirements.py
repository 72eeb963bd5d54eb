"""Environment variables that an environment cannot run without, checked before a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from control_tower.environments.environment import EnvDocs, env_internet_simulator
from control_tower.errors import StateError


@dataclass(frozen=True)
class RequiredEnvVar:
    """A variable that must be set: what it is for and how to get it."""

    name: str
    description: str = ""
    setup: str = ""


@dataclass(frozen=True)
class RequiredEnvAnyOf:
    """Variables of which one must be set."""

    names: Sequence[str]
    description: str = ""
    setup: str = ""


@dataclass(frozen=True)
class Requirements:
    """What a run asks of the process environment for one environment."""

    env_id: str
    docs: EnvDocs
    upstream_keys: Mapping[str, str]
    """Variable by upstream host that the simulated internet forwards to with a key."""

    def missing(self, variables: Mapping[str, str]) -> list[str]:
        """One line for each thing that is missing."""
        lines = [
            _line(required.name, required.description, required.setup)
            for required in self.docs.required_env_vars
            if not is_set(variables.get(required.name))
        ]
        lines += [
            _line("one of " + ", ".join(group.names), group.description, group.setup)
            for group in self.docs.required_env_any_of
            if not any(is_set(variables.get(name)) for name in group.names)
        ]
        lines += [
            _line(name, f"key for {host}", "")
            for host, name in self.upstream_keys.items()
            if not is_set(variables.get(name))
        ]
        return lines


def requirements_of(
    env_id: str, env: object, docs: EnvDocs, *, internet_simulator: bool = False
) -> Requirements:
    """What an environment requires; the keys of its simulated internet only where that is used."""
    config = env_internet_simulator(env) if internet_simulator else None
    return Requirements(env_id, docs, {} if config is None else config.upstream_keys())


def check_requirements(
    requirements: Iterable[Requirements], variables: Mapping[str, str] | None = None
) -> None:
    """Refuse to start a run that lacks variables.

    Args:
        requirements: those of every selected environment.
        variables: where to look, by default this process's environment.

    Raises:
        StateError: something is missing; the message lists all of it by environment.
    """
    where = os.environ if variables is None else variables
    missing = {each.env_id: each.missing(where) for each in requirements}
    lines = [
        f"{env_id}:\n" + "\n".join(f"  {line}" for line in found)
        for env_id, found in missing.items()
        if found
    ]
    if lines:
        raise StateError(
            "environment variables are missing (set them in the setting's .env file, "
            "keys of model providers in the .env of the working folder)\n" + "\n".join(lines)
        )


def is_set(value: str | None) -> bool:
    """Whether a variable holds something: not blank, and no bare `<placeholder>`."""
    text = (value or "").strip()
    return bool(text) and not re.fullmatch(r"<[^<>]*>", text)


def _line(name: str, description: str, setup: str) -> str:
    return " - ".join(part for part in (name, description, setup) if part)
