"""The argument `harness` of protocols: which loop asks for turns and runs them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from control_tower.errors import UsageError


class HarnessChoice(BaseModel):
    """The plain loop, or a coding agent that runs in the sandbox."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["null", "inspect_swe"] = "null"
    agent: str | None = None
    """Which coding agent."""
    version: str | None = None
    args: dict[str, Any] = Field(default_factory=dict)


def _spelled(value: Any) -> Any:
    """`null` is read by YAML as nothing at all, alone and in `{kind: null}`."""
    if value is None:
        return PLAIN
    if isinstance(value, dict) and value.get("kind", "") is None:  # pyright: ignore[reportUnknownMemberType]
        return {**value, "kind": "null"}  # pyright: ignore[reportUnknownVariableType]
    return {"kind": value} if isinstance(value, str) else value  # pyright: ignore[reportUnknownVariableType]


PLAIN = HarnessChoice()
HarnessArg = Annotated[HarnessChoice, BeforeValidator(_spelled)]


def check_harness(harness: HarnessChoice) -> None:
    """Refuse what this version cannot run.

    Raises:
        UsageError: it is a coding agent in the sandbox.
    """
    if harness.kind != "null":
        agent = f" ({harness.agent})" if harness.agent else ""
        raise UsageError(
            f"harness {harness.kind}{agent} cannot be run by this version: "
            "leave harness out for the plain loop"
        )
