"""Which models play when the user names none."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from control_tower.evals.plan import RunPlan
from control_tower.models.roles import DEFAULT_ROLES, DEMO_ROLES, KEY_VARIABLES, UNTRUSTED, RoleSpec


@dataclass(frozen=True)
class BoundRoles:
    """The models of a run, and what to tell the user about them."""

    roles: dict[str, RoleSpec]
    note: str | None = None


def bind_roles(plan: RunPlan, given: Mapping[str, RoleSpec]) -> BoundRoles:
    """The roles of a run: those given, and defaults where a model is asked at all.

    A default that the protocol does not need is bound only when its provider's key is set. Without any
    provider key and with only the demo selected, the defaults are the demo's models.

    Args:
        plan: the run, its roles not yet bound.
        given: the roles that the user named.
    """
    if plan.scripted:
        return BoundRoles(dict(given))
    if plan.demo_only and UNTRUSTED not in given and not any(map(_has_key, KEY_VARIABLES)):
        roles = {**{role: RoleSpec(model_name=model) for role, model in DEMO_ROLES.items()}, **given}
        named = ", ".join(f"{role}={spec.full_name}" for role, spec in roles.items())
        return BoundRoles(roles, f"No provider key is set and only the demo is selected: models are {named}.")
    needed = {UNTRUSTED, *plan.protocol.entry.metadata.get("roles", ())}
    defaults = {role: RoleSpec(model_name=model) for role, model in DEFAULT_ROLES.items()}
    bound = {role: spec for role, spec in defaults.items() if role in needed or _has_key(spec.provider_name)}
    return BoundRoles({**bound, **given})


def _has_key(provider: str) -> bool:
    variable = KEY_VARIABLES.get(provider)
    return bool(variable and (os.environ.get(variable) or "").strip())
