"""The variables of a run that nobody else may see: keys of its providers, and what its settings require."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from control_tower.config import is_secret_name
from control_tower.logs.masking import mask_log
from control_tower.redactor import PASSWORD, Redactor

if TYPE_CHECKING:
    from control_tower.evals.plan import RunPlan

_KEY_OF: Mapping[str, tuple[str, ...]] = {
    "grok": ("XAI",),
    "hf": ("HF",),
    "hf-inference-providers": ("HF",),
    "google": ("GOOGLE", "GEMINI"),
    "azure": ("AZUREAI", "AZURE"),
    "bedrock": ("AWS", "BEDROCK"),
    "vertex": ("VERTEX", "GOOGLE"),
}
"""How variables of a provider, or of a service within it, begin where that is not its own name."""

_SERVICES = frozenset({"azure", "bedrock", "vertex"})
"""What may stand between a provider's name and a model's, and has keys of its own."""

_ADDRESS = ("_BASE_URL", "_ENDPOINT", "_ENDPOINT_URL")
"""How addresses of providers end; one may hold a password."""

_SECRET_PARTS = (
    *("_API_KEY", "_AUTH_TOKEN", "_API_TOKEN", "_TOKEN", "_SECRET_ACCESS_KEY", "_TOKEN_BEDROCK"),
    *_ADDRESS,
)
"""How a provider's secret variables end."""

_SHORTEST_IN_LOGS = 16
"""Characters of a value that is taken out of logs: a shorter one may be a word that an agent writes, too."""


def secret_names(plan: RunPlan) -> tuple[str, ...]:
    """The variables set here that are those of the providers of the run's models or that it requires."""
    names = {
        name
        for one in plan.environments.values()
        for docs in [one.found.env.docs(one.args)]
        for name in (
            *(variable.name for variable in docs.required_env_vars),
            *(name for group in docs.required_env_any_of for name in group.names),
        )
    }
    for spec in plan.config.model_roles.values():
        provider, _, rest = spec.full_name.partition("/")
        service = rest.partition("/")[0]
        # Inspect's providers for services that speak OpenAI's protocol take their own variables.
        named_after = provider in ("openai-api", "openai-api-completions")
        sources = [service] if named_after else [provider, *({service} & _SERVICES)]
        begins = tuple(
            f"{begin}_"
            for source in sources
            for begin in _KEY_OF.get(source, (source.upper().replace("-", "_"),))
        )
        names |= {name for name in os.environ if name.startswith(begins) and name.endswith(_SECRET_PARTS)}
    return tuple(sorted(name for name in names if os.environ.get(name)))


def log_redactor(values: Mapping[str, str]) -> Redactor:
    """Takes secrets out of a log; what an agent might write by chance stays.

    Args:
        values: By their variables. Those named as secrets are, and addresses with a password.
    """
    named = [value for name, value in values.items() if is_secret_name(name) and not name.endswith(_ADDRESS)]
    passwords = [
        part
        for value in values.values()
        if (found := re.search(PASSWORD, value))
        for part in (value, found["password"])
    ]
    return Redactor([*named, *passwords], _SHORTEST_IN_LOGS)


def mask_secrets(plan: RunPlan, log: Path) -> None:
    """Takes what only this run may know out of its log.

    Raises:
        DamagedArchive: The log is damaged.
        OperationError: It cannot be written; it is as it was.
    """
    if redactor := log_redactor({name: os.environ[name] for name in secret_names(plan)}):
        mask_log(log, redactor.data)
