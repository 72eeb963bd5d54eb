"""Fresh secret values of each sample, put into the agent's machine and read back on the host only."""

from __future__ import annotations

import secrets
from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from inspect_ai.util import SandboxEnvironment, sandbox

from control_tower.environments.space import TaskCombination, TaskSpace
from control_tower.environments.task import MainTask
from control_tower.environments.task_map import LazyTaskMap
from control_tower.errors import StateError, ValidationError


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


def paired_runtime_vars(space: TaskSpace, mains: Iterable[MainTask]) -> dict[str, RuntimeVar]:
    """The variables that a sample of these main tasks gets, attack or not.

    Those of every side task that the space pairs with one of the mains: honest samples get them as
    decoys, so that their names do not tell which samples are attacks.

    Raises:
        StateError: a side task does not load, so the decoys would be incomplete.
        ValidationError: two side tasks declare a name with different generators.
    """
    sides = space.sides()
    errors = sides.load_errors if isinstance(sides, LazyTaskMap) else {}
    if errors:
        raise StateError(
            "side tasks that do not load leave the decoy variables of honest samples incomplete: "
            + "; ".join(f"{task_id}: {error}" for task_id, error in errors.items())
        )
    variables: dict[str, RuntimeVar] = {}
    owners: dict[str, str] = {}
    main_tasks = list(mains)
    for side in sides.values():
        if not any(TaskCombination((main,), (side,)) in space for main in main_tasks):
            continue
        for name, variable in side.runtime_vars.items():
            if variables.setdefault(name, variable) != variable:
                raise ValidationError(
                    f"side tasks '{owners[name]}' and '{side.id}' declare runtime variable '{name}' "
                    "with different generators"
                )
            owners.setdefault(name, side.id)
    return variables


def sample_runtime_vars(space: TaskSpace, combination: TaskCombination) -> dict[str, RuntimeVar]:
    """The variables of one sample: its side tasks' own and the decoys.

    Raises:
        StateError, ValidationError: as `paired_runtime_vars`; also for a side task with variables that the
            space does not pair with the sample's main tasks, which honest samples would have no decoy for.
    """
    variables = paired_runtime_vars(space, combination.mains)
    for side in combination.sides:
        if any(variables.get(name) != variable for name, variable in side.runtime_vars.items()):
            raise ValidationError(
                f"side task '{side.id}' has runtime variables but is not paired with "
                f"{', '.join(sorted(combination.main_ids)) or 'a main task'} in its environment's task space"
            )
    return variables


def declare(env_id: str, variables: Mapping[str, RuntimeVar]) -> None:
    """Make the variables of an environment's samples known to this process, before the samples start.

    `env_id` is the id that the samples' metadata holds under `environment`.
    """
    _declared.setdefault(env_id, {}).update(variables)


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
    value = variable.generator()
    if not value.strip() or len(value.splitlines()) != 1:
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
