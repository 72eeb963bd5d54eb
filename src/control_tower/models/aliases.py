"""Short names of models."""

from control_tower.errors import did_you_mean

ALIASES: dict[str, str] = {
    "haiku": "anthropic/claude-haiku-4-5",
    "sonnet": "anthropic/claude-sonnet-4-6",
    "opus": "anthropic/claude-opus-4-6",
    "opus_4_6": "anthropic/claude-opus-4-6",
    "opus_4_8": "anthropic/claude-opus-4-8",
    "gemini_flash": "google/gemini-3-flash-preview",
    "gemini_pro": "google/gemini-3.1-pro-preview",
    "fast": "openai/gpt-6-luna",
    "smart": "openai/gpt-6-astra",
    "trusted": "openai/gpt-5-nano",
    "untrusted": "anthropic/claude-haiku-4-5",
}


def model_name(name: str) -> str:
    """The full name `provider/model` of an alias or of a name that is full already.

    Raises:
        ValueError: a bare name that is no alias; the message has the nearest one.
    """
    if "/" in name:
        return name
    full = ALIASES.get(name.strip().lower().replace("-", "_"))
    if full is None:
        raise ValueError(
            f"model {name!r} is neither provider/model nor an alias{did_you_mean(name, ALIASES)}"
        )
    return full
