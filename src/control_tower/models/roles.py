"""Model roles: which model plays which part of a run."""

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from control_tower import config as configuration
from control_tower.errors import StateError, UsageError, did_you_mean, on_one_line
from control_tower.models.aliases import model_name
from control_tower.models.cost import price_calls
from control_tower.models.openrouter import PREFIX, is_pinned, preferences, routed
from control_tower.models.rate_sources import Prices

if TYPE_CHECKING:
    from inspect_ai.model import Model

UNTRUSTED = "untrusted"
TRUSTED = "trusted"

KNOWN_ROLES = frozenset(
    {UNTRUSTED, TRUSTED, "hidden_untrusted", "red_planner", "monitor", "protocol", "scorer"}
)
"""Roles that are asked by our own code; settings may ask others."""

DEFAULT_ROLES: dict[str, str] = {UNTRUSTED: "untrusted", TRUSTED: "trusted"}
"""Bound when a policy asks a model and the user names none."""

DEMO_ROLES: dict[str, str] = {UNTRUSTED: "demo/agent", TRUSTED: "demo/trusted", "monitor": "demo/judge"}
"""Bound instead where only the demo is selected and no provider key is set."""

DEFAULT_MAX_RETRIES = 10

KEY_VARIABLES: dict[str, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
"""The variable that holds a provider's key, for the providers of the aliases."""


class RoleSpec(BaseModel):
    """A model and how it is asked; a model that is routed through OpenRouter has its name there."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_name: str
    config: dict[str, Any] = Field(default_factory=dict)
    """Inspect's GenerateConfig fields, such as `reasoning_effort` or `max_tokens`."""
    provider: str | None = None
    """Put before `model_name` when that has no provider."""
    openrouter: dict[str, Any] | None = None
    """OpenRouter's provider preferences in place of ours, such as `{"only": ["deepinfra"]}`."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        for key in cast("dict[str, Any]", value) if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"no such key: {key}{did_you_mean(key, cls.model_fields, cutoff=0.7)}")
        return cast(object, value)

    @field_validator("config")
    @classmethod
    def _known_config(cls, value: dict[str, Any]) -> dict[str, Any]:
        from inspect_ai.model import GenerateConfig

        if secret := sorted({"extra_headers", "extra_body"} & set(value)):
            raise ValueError(f"{', '.join(secret)} would stand in the log; set keys in the environment")
        if value.get("cache"):
            raise ValueError("cache would give every draw of a request the same answer; leave it out")
        for key in value:
            if key not in GenerateConfig.model_fields:
                near = did_you_mean(key, GenerateConfig.model_fields)
                raise ValueError(f"no such generation setting: {key}{near}")
        return GenerateConfig.model_validate(value).model_dump(exclude_unset=True, mode="json")

    @model_validator(mode="after")
    def _routed(self) -> Self:
        name = routed(self.full_name)
        if name != self.full_name:
            # What is recorded is what is asked, wherever the run is played.
            object.__setattr__(self, "model_name", name)
            object.__setattr__(self, "provider", None)
        if self.openrouter is not None and not name.startswith(PREFIX):
            raise ValueError(f"openrouter is for models that it serves, and {name} is asked directly")
        return self

    @property
    def full_name(self) -> str:
        """`provider/model`."""
        if self.provider:
            return f"{self.provider}/{self.model_name}"
        return model_name(self.model_name)

    @property
    def provider_name(self) -> str:
        """The part of the full name before the first slash."""
        return self.full_name.partition("/")[0]

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the provider beside the name."""
        if not self.full_name.startswith(PREFIX):
            return {}
        return {"provider": preferences(self.full_name) if self.openrouter is None else self.openrouter}


def parse_roles(items: Iterable[str]) -> dict[str, RoleSpec]:
    """Read `role=model` and `role={"model_name": ..., "config": {...}}`.

    Raises:
        UsageError: no `=`, a role given twice, an unknown alias or a bad specification.
    """
    roles: dict[str, RoleSpec] = {}
    for item in items:
        role, separator, text = item.partition("=")
        role, text = role.strip(), text.strip()
        if not (separator and role and text):
            raise UsageError(f"--model-role {item!r} must be ROLE=MODEL or ROLE=JSON")
        near = difflib.get_close_matches(role, KNOWN_ROLES, 1, 0.8)
        if near and role not in KNOWN_ROLES:
            raise UsageError(f"--model-role {role}: did you mean {near[0]!r}?")
        if role in roles:
            raise UsageError(f"--model-role {role} is given twice")
        try:
            spec = json.loads(text) if text.startswith("{") else {"model_name": text}
            roles[role] = RoleSpec.model_validate(spec)
        except ValidationError as error:
            problems = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
            raise UsageError(f"--model-role {role}: {problems}") from None
        except ValueError as error:
            raise UsageError(f"--model-role {role}: {error}") from None
    return roles


def unpinned(roles: Mapping[str, RoleSpec]) -> list[str]:
    """The models that OpenRouter may serve by another provider from call to call."""
    routes = {spec.full_name: spec.arguments.get("provider") for spec in roles.values()}
    return [name for name, provider in routes.items() if provider is not None and not is_pinned(provider)]


def make_models(roles: Mapping[str, RoleSpec]) -> "dict[str, Model]":
    """The models of a run by role; their calls are stamped with what they cost.

    Raises:
        OperationError: a rate table cannot be read.
        StateError: a provider is unknown, its package missing, or its key not set.
    """
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.model import GenerateConfig, get_model

    retries = int(configuration.get("max_retries") or DEFAULT_MAX_RETRIES)
    prices = Prices()
    models: dict[str, Model] = {}
    for role, spec in roles.items():
        config = GenerateConfig.model_validate({"max_retries": retries, **spec.config})
        variable = KEY_VARIABLES.get(spec.provider_name)
        if variable and not os.environ.get(variable, "unset").strip():
            # Set to nothing, it would pass the provider's check and fail at the first call.
            raise StateError(_cannot_make(role, spec, ""))
        try:
            models[role] = get_model(spec.full_name, config=config, memoize=False, **spec.arguments)
        except PrerequisiteError as error:
            raise StateError(_cannot_make(role, spec, str(error.message))) from error
        except ValueError as error:
            raise StateError(_cannot_make(role, spec, str(error))) from error
        price_calls(models[role], prices)
    return models


def _cannot_make(role: str, spec: RoleSpec, cause: str) -> str:
    variable = KEY_VARIABLES.get(spec.provider_name)
    if variable and not (os.environ.get(variable) or "").strip():
        fix = f"set {variable} in the environment or in .env"
        return f"role {role}: {spec.full_name} needs a key: {fix}, or choose another --model-role {role}=..."
    return f"role {role}: {spec.full_name} cannot be used: {on_one_line(cause)}"
