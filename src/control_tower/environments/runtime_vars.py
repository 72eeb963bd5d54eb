"""Fresh secret values of each sample, put into the agent's machine and read back on the host only."""

from __future__ import annotations

import secrets
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from inspect_ai.util import SandboxEnvironment, sandbox

from control_tower.errors import StateError


def _random_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class RuntimeVar:
    """A variable that gets a new value in every sample; `generator` makes one non-blank line."""

    generator: Callable[[], str] = _random_token


class RuntimeVarsSandbox(SandboxEnvironment, ABC):
    """Base of sandboxes that can give the agent's machine fresh variables for a sample."""

    runtime_vars: Mapping[str, str]
    """The values of this sample, by name; empty on machines other than the agent's."""

    async def archive(self, path: str, destination: Path, *, max_bytes: int, timeout: int) -> bool:
        """Write a tar of the folder `path` to the host file `destination` without asking the agent's machine.

        Nothing that the agent can replace (a `tar` on its PATH) takes part, at most `max_bytes` are
        written, and member names are relative to `path`. May be gzip-compressed.

        Returns:
            False when this provider has no such way; the caller then runs `tar` inside.

        Raises:
            FileNotFoundError: `path` is no folder.
            TimeoutError: it took more than `timeout` seconds.
            OverflowError: the tar has more than `max_bytes`.
        """
        del path, destination, max_bytes, timeout
        return False


_declared: dict[str, dict[str, RuntimeVar]] = {}


def declare(env_id: str, variables: Mapping[str, RuntimeVar]) -> None:
    """Make an environment's variables known to this process, before its samples start.

    Raises:
        ValueError: a name is already declared for the environment with another generator.
    """
    table = _declared.setdefault(env_id, {})
    for name, variable in variables.items():
        if table.setdefault(name, variable) != variable:
            raise ValueError(f"{env_id}: runtime variable '{name}' is declared with two generators")


def fresh(metadata: Mapping[str, Any]) -> dict[str, str]:
    """New values for the variables that a sample's metadata lists under `runtime_vars`.

    Raises:
        StateError: a listed variable was not declared in this process.
        ValueError: a generator made something else than one non-blank line.
    """
    names = cast(list[str], metadata.get("runtime_vars") or [])
    if not names:
        return {}
    environment = cast(Mapping[str, Any], metadata.get("environment") or {})
    env_id = str(environment.get("id", ""))
    table = _declared.get(env_id, {})
    return {name: _fresh_value(env_id, name, table.get(name)) for name in names}


def _fresh_value(env_id: str, name: str, variable: RuntimeVar | None) -> str:
    if variable is None:
        raise StateError(
            f"runtime variable '{name}' of '{env_id}' has no generator here: run the environment's own tasks"
        )
    value: object = variable.generator()
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) != 1:
        raise ValueError(f"{env_id}: the generator of '{name}' must make one non-blank line")
    return value


def read_runtime_var(name: str) -> str:
    """The current sample's value of a variable, read on the host, never from the agent's machine.

    Raises:
        LookupError: it is unset; a missing secret must never count as a match.
    """
    values = sandbox().as_type(RuntimeVarsSandbox).runtime_vars
    if not values.get(name):
        raise LookupError(f"runtime variable '{name}' has no value in this sample")
    return values[name]
