"""White: what the referee allows both sides, the same for a whole run."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

DEFAULT_MAX_STEPS = 200


class White(BaseModel):
    """The rules of play."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    private_tools: frozenset[str] = frozenset()
    """Ids of the tools that a policy may use unseen by blue."""
    harnesses: frozenset[str] | None = None
    """Sandbox agents that a protocol may choose as harness; None allows all."""
    max_steps: int = Field(default=DEFAULT_MAX_STEPS, ge=1)
    """How often the untrusted model may be asked in one sample."""

    @field_validator("private_tools", "harnesses", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return frozenset(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_serializer("private_tools", "harnesses")
    def _sorted(self, value: frozenset[str] | None) -> list[str] | None:
        return None if value is None else sorted(value)
