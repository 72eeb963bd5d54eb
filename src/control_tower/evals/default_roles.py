"""Which models play when the user names none."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control_tower.errors import StateError, UsageError, did_you_mean
from control_tower.evals.plan import RunPlan, Side
from control_tower.models.roles import (
    DEFAULT_ROLES,
    DEMO_ROLES,
    KEY_VARIABLES,
    TRUSTED,
    UNTRUSTED,
    RoleSpec,
    unpinned,
)
from control_tower.monitors.config import MONITOR_ROLE, Monitor, monitors_in, roles_of


@dataclass(frozen=True)
class BoundRoles:
    """The models of a run, and what to tell the user about them."""

    roles: dict[str, RoleSpec]
    note: str | None = None


def bind_roles(plan: RunPlan, given: Mapping[str, RoleSpec]) -> BoundRoles:
    """The roles of a run: those given, and defaults where a model is asked at all.

    Without any provider key and with only the demo selected, the defaults are the demo's models. A default
    that nobody is known to ask is bound only beside a policy that asks models, and when it has its key.

    Args:
        plan: the run, its roles not yet bound.
        given: the roles that the user named.

    Raises:
        StateError: the protocol asks a role that has neither a model nor a default.
    """
    needed = asked_roles(plan.protocol) | (frozenset[str]() if plan.scripted else {UNTRUSTED})
    demo = plan.demo_only and UNTRUSTED not in given and not any(map(_has_key, KEY_VARIABLES))
    defaults = {r: RoleSpec(model_name=name) for r, name in (DEMO_ROLES if demo else DEFAULT_ROLES).items()}
    if MONITOR_ROLE in needed and MONITOR_ROLE not in {*given, *defaults}:
        needed = needed - {MONITOR_ROLE} | {TRUSTED}
    bound = {
        role: spec
        for role, spec in defaults.items()
        if role not in given
        and (role in needed or (not plan.scripted and (demo or _has_key(spec.provider_name))))
    }
    roles = {**bound, **given}
    if lacking := sorted(needed - roles.keys()):
        options = " ".join(f"--model-role {role}=..." for role in lacking)
        name = plan.protocol.entry.name
        raise StateError(f"protocol {name} asks {', '.join(lacking)}, which has no model: give {options}")
    named = ", ".join(f"{role}={spec.full_name}" for role, spec in roles.items())
    notes = (
        [f"No provider key is set and only the demo is selected: models are {named}."]
        if demo and bound
        else []
    )
    if loose := unpinned(roles):
        notes.append(
            f"OpenRouter may serve {', '.join(loose)} by another provider from call to call; pin one with "
            '--model-role \'ROLE={"model_name": "...", "openrouter": {"only": ["PROVIDER"]}}\'.'
        )
    return BoundRoles(roles, "\n".join(notes) or None)


def asked_roles(side: Side) -> frozenset[str]:
    """The roles that a protocol asks: those it was registered with, and those of its monitors."""
    return frozenset[str](side.entry.metadata.get("roles", ())) | roles_of(monitors_in(side.args))


def _has_key(provider: str) -> bool:
    variable = KEY_VARIABLES.get(provider)
    return bool(variable and (os.environ.get(variable) or "").strip())


def monitor_roles(monitors: Sequence[Monitor], given: Mapping[str, RoleSpec], *, demo: bool) -> BoundRoles:
    """The roles of monitors that judge a finished log: those given that they ask, and the defaults.

    Args:
        monitors: who judges.
        given: the roles that the user named.
        demo: whether every sample is the demo's.

    Raises:
        UsageError: a role was named that none of them asks.
        StateError: one of them asks a role that has neither a model nor a default.
    """
    needed = roles_of(monitors)
    allowed = needed | ({TRUSTED} if MONITOR_ROLE in needed else set[str]())
    if useless := sorted(given.keys() - allowed):
        hint = did_you_mean(useless[0], allowed)
        raise UsageError(f"--model-role {useless[0]}: none of the monitors asks it{hint}")
    demo = demo and not any(map(_has_key, KEY_VARIABLES))
    defaults = DEMO_ROLES if demo else DEFAULT_ROLES
    if MONITOR_ROLE in needed - given.keys() and (TRUSTED in given or MONITOR_ROLE not in defaults):
        needed = needed - {MONITOR_ROLE} | {TRUSTED}
    known = {**{role: RoleSpec(model_name=name) for role, name in defaults.items()}, **given}
    roles = {role: spec for role, spec in known.items() if role in needed}
    if lacking := sorted(needed - roles.keys()):
        options = " ".join(f"--model-role {role}=..." for role in lacking)
        raise StateError(f"the monitors ask {', '.join(lacking)}, which has no model: give {options}")
    named = ", ".join(f"{role}={spec.full_name}" for role, spec in roles.items() if role not in given)
    if demo and named:
        return BoundRoles(roles, f"No provider key is set and the log is the demo's: models are {named}.")
    return BoundRoles(roles)
