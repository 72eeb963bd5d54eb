"""The simulated internet an environment declares; its configuration only."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

BUILT_IN_UPSTREAMS = {
    "anthropic": ("api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai": ("api.openai.com", "OPENAI_API_KEY"),
    "openrouter": ("openrouter.ai", "OPENROUTER_API_KEY"),
}
"""Upstreams known by name: host and the variable that holds the key."""

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+", re.IGNORECASE
)


def is_host_name(text: str) -> bool:
    """Whether a text is a dotted host name without scheme, port or path."""
    return _HOST.fullmatch(text) is not None


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PersonaConfig(_Config):
    """A host the simulator plays."""

    server_header: str = "nginx/1.24.0"
    endpoints: frozenset[str] = frozenset()
    backend: str | None = None
    """`<service>:<port>` of the environment that answers for it."""
    proxy_all: bool = False
    """Every path goes to the backend, not only unknown ones."""

    @field_validator("backend")
    @classmethod
    def _service_and_port(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\w.-]+:\d{1,5}", value):
            raise ValueError(f"backend {value!r} must be <service>:<port>")
        return value

    @model_validator(mode="after")
    def _proxy_needs_backend(self) -> PersonaConfig:
        if self.proxy_all and self.backend is None:
            raise ValueError("proxy_all needs a backend")
        return self


class CustomUpstreamProxy(_Config):
    """A real host that is forwarded to over https, with a key that stays on the host machine."""

    host: str
    api_key_env: str
    auth_header: str
    auth_scheme: str | None = None


class InternetSimulatorConfig(_Config):
    """What of the internet an environment's machines can see."""

    network: str = "default"
    """The compose network that the simulator joins."""
    personas: dict[str, PersonaConfig] = Field(default_factory=dict)
    seed_assets_from: str | None = None
    exposed_services: dict[str, str] = Field(default_factory=dict)
    upstream_proxies: list[str | CustomUpstreamProxy] = Field(default_factory=list[str | CustomUpstreamProxy])
    """Built-in names (anthropic, openai, openrouter) or own hosts."""

    def upstream_keys(self) -> dict[str, str]:
        """The variable that holds the key of each upstream host."""
        built_in, custom = split_upstream_proxy_entries(self.upstream_proxies)
        known = dict(BUILT_IN_UPSTREAMS[name] for name in built_in)
        return known | {proxy.host: proxy.api_key_env for proxy in custom}


def split_upstream_proxy_entries(
    entries: list[str | CustomUpstreamProxy],
) -> tuple[list[str], list[CustomUpstreamProxy]]:
    """Built-in upstream names and custom ones apart.

    Raises:
        ValueError: a name that is not built in.
    """
    names = [entry for entry in entries if isinstance(entry, str)]
    if unknown := [name for name in names if name not in BUILT_IN_UPSTREAMS]:
        known = ", ".join(sorted(BUILT_IN_UPSTREAMS))
        raise ValueError(f"unknown upstream {', '.join(unknown)} (built in: {known})")
    return names, [entry for entry in entries if isinstance(entry, CustomUpstreamProxy)]
