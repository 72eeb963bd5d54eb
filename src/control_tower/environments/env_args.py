"""`--env-arg key=value`: which environment a value is for, and whether its model takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pydantic
from pydantic import BaseModel

from control_tower.environments.environment import env_args_model
from control_tower.errors import UsageError, did_you_mean

OPTION = "--env-arg"


def resolve_env_args(items: Sequence[str], envs: Mapping[str, Any]) -> dict[str, BaseModel | None]:
    """The validated arguments of every selected environment, None for those that take none.

    Args:
        items: `key=value` or `environment:key=value`, hyphens and underscores not told apart.
        envs: the selected environments by id, `<setting>/<env>` or bare.

    Raises:
        UsageError: whatever is wrong with an item; the message names it.
    """
    models = {env_id: env_args_model(env) for env_id, env in envs.items()}
    given: dict[str, dict[str, str]] = {env_id: {} for env_id in envs}
    for item in items:
        env_name, key, value = _split(item)
        env_id = _owner(item, key, models) if env_name is None else _named(item, env_name, models)
        model = models[env_id]
        if model is None:
            raise UsageError(f"{OPTION} {item}: environment '{env_id}' takes no arguments")
        if key not in model.model_fields:
            raise UsageError(
                f"{OPTION} {item}: '{env_id}' has no argument '{key}'{did_you_mean(key, model.model_fields)}"
            )
        if key in given[env_id]:
            raise UsageError(f"{OPTION} {item}: '{key}' of '{env_id}' is given twice")
        given[env_id][key] = value
    return {
        env_id: None if model is None else _validated(env_id, model, given[env_id])
        for env_id, model in models.items()
    }


def restore_env_args(env: object, recorded: Mapping[str, Any]) -> BaseModel | None:
    """The arguments that a sample's metadata recorded, as the environment's own model.

    Raises:
        UsageError: the environment takes none, or no longer these.
    """
    model = env_args_model(env)
    env_id = str(getattr(env, "id", ""))
    if model is None:
        if recorded:
            raise UsageError(
                f"environment '{env_id}' takes no arguments, but {sorted(recorded)} are recorded"
            )
        return None
    return _validated(env_id, model, recorded)


def _split(item: str) -> tuple[str | None, str, str]:
    name, equals, value = item.partition("=")
    env_name, colon, key = name.rpartition(":")
    if not equals or not key.strip() or not value or (colon and not env_name.strip()):
        raise UsageError(f"{OPTION} {item!r}: write it as key=value or environment:key=value")
    return (env_name.strip() if colon else None), _plain(key.strip()), value


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _owner(item: str, key: str, models: Mapping[str, type[BaseModel] | None]) -> str:
    owners = [env_id for env_id, model in models.items() if model is not None and key in model.model_fields]
    if len(owners) == 1:
        return owners[0]
    if owners:
        forms = " or ".join(f"{env_id}:{item}" for env_id in owners)
        raise UsageError(f"{OPTION} {item}: several environments take it; write {forms}")
    known = [
        f"{env_id}:{field}"
        for env_id, model in models.items()
        if model is not None
        for field in model.model_fields
    ]
    if not known:
        raise UsageError(f"{OPTION} {item}: no selected environment takes arguments")
    raise UsageError(
        f"{OPTION} {item}: no selected environment takes '{key}' ({', '.join(known)} can be set)"
    )


def _named(item: str, name: str, models: Mapping[str, Any]) -> str:
    matches = [
        env_id for env_id in models if _plain(name) in (_plain(env_id), _plain(env_id.rsplit("/", 1)[-1]))
    ]
    if len(matches) != 1:
        raise UsageError(f"{OPTION} {item}: environment '{name}' is not selected{did_you_mean(name, models)}")
    return matches[0]


def _validated(env_id: str, model: type[BaseModel], values: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(values))
    except pydantic.ValidationError as error:
        first = cast(dict[str, Any], error.errors(include_url=False)[0])
        place = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise UsageError(f"{OPTION} {place} of '{env_id}': {first['msg']}") from error
