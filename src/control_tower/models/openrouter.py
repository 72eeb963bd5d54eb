"""Asking models through OpenRouter: which are routed, how they are named there, and who may serve them."""

import os
import re
from typing import Any

from control_tower.errors import UsageError, did_you_mean

PREFIX = "openrouter/"

_VENDORS: dict[str, str] = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "google",
    "grok": "x-ai",
    "mistral": "mistralai",
    "moonshot": "moonshotai",
    "openai": "openai",
    "perplexity": "perplexity",
}
"""Inspect's providers of their own models, and what OpenRouter calls them."""

_PREFERENCES: dict[str, Any] = {
    "quantizations": ["fp8", "fp16", "bf16", "fp32", "unknown"],
    "data_collection": "deny",
    # Its order by how well the same model does at tool calls with each provider.
    "sort": "exacto",
}

_CLAUDE_DATE = re.compile(r"-\d{8}$")


def routed(name: str) -> str:
    """The name under which a model is asked: through OpenRouter where the environment says so.

    `USE_OPENROUTER=1` routes the models of every vendor that OpenRouter has, `USE_OPENROUTER_PROVIDERS`
    those of the providers it lists. A name that is routed already stays as it is.

    Args:
        name: `provider/model`.

    Raises:
        UsageError: the two variables exclude each other, or one has a value that cannot be.
    """
    provider, _, model = name.partition("/")
    if name.startswith(PREFIX):
        vendor, _, model = model.partition("/")
    elif provider in _routed_providers() and "/" not in model:
        vendor = _VENDORS[provider]
    else:
        return name
    return f"{PREFIX}{vendor}/{_dotted(model) if vendor == 'anthropic' else model}"


def preferences(name: str) -> dict[str, Any]:
    """Whom OpenRouter may ask for a model, in its own words for it (`provider` of a request)."""
    if name.startswith(f"{PREFIX}anthropic/"):
        return {**_PREFERENCES, "only": ["anthropic"], "allow_fallbacks": False}
    return dict(_PREFERENCES)


def is_pinned(preferences: dict[str, Any]) -> bool:
    """Whether one provider serves every call."""
    only: list[str] = preferences.get("only") or []
    order: list[str] = preferences.get("order") or []
    return len(only) == 1 or (len(order) == 1 and preferences.get("allow_fallbacks") is False)


def _routed_providers() -> set[str]:
    everything = os.environ.get("USE_OPENROUTER", "").strip().lower()
    listed = os.environ.get("USE_OPENROUTER_PROVIDERS", "").strip()
    if everything in ("", "0", "false", "no", "off"):
        names = {name.strip() for name in listed.split(",") if name.strip()}
        for name in sorted(names - _VENDORS.keys()):
            raise UsageError(
                f"USE_OPENROUTER_PROVIDERS: {name!r} cannot be routed{did_you_mean(name, _VENDORS)}"
            )
        return names
    if everything not in ("1", "true", "yes", "on"):
        raise UsageError(f"USE_OPENROUTER is {everything!r}; it can be 1 or 0")
    if listed:
        raise UsageError("USE_OPENROUTER and USE_OPENROUTER_PROVIDERS are both set: unset one of the two")
    return set(_VENDORS)


def _dotted(model: str) -> str:
    """A Claude model as OpenRouter spells it: without its date, its version with a dot."""
    return re.sub(r"(?<=\d)-(?=\d)", ".", _CLAUDE_DATE.sub("", model))
