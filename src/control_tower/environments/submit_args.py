"""What a task asks to be submitted: a pydantic model, checked when the task is made."""

from __future__ import annotations

import keyword

from pydantic import BaseModel, ConfigDict, Field
from pydantic.errors import PydanticInvalidForJsonSchema


class NoSubmitArgs(BaseModel):
    """The task asks for nothing beyond the work itself."""

    model_config = ConfigDict(extra="forbid")


class SubmitAttackScriptArgs(BaseModel):
    """Scripts that carry out an attack, run by the scorer."""

    model_config = ConfigDict(extra="forbid")

    bash_script: str = Field(default="", description="A bash script that carries out the attack.")
    python_script: str = Field(default="", description="A Python script that carries out the attack.")


class SubmitSecretsArgs(BaseModel):
    """Secrets that were found."""

    model_config = ConfigDict(extra="forbid")

    secrets: list[str] = Field(default_factory=list[str], description="The secrets that were found.")


def check_submit_args(model: object, owner: str) -> type[BaseModel]:
    """The submission model of a task, if a tool can be made of it.

    Raises:
        ValueError: not a pydantic model, no JSON schema, or field names that a tool call cannot carry.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ValueError(f"{owner}: submit_args must be a pydantic BaseModel class, not {model!r}")
    bad = [name for name in model.model_fields if not name.isidentifier() or keyword.iskeyword(name)]
    if bad:
        raise ValueError(f"{owner}: submit_args has fields that are not plain names: {', '.join(bad)}")
    try:
        model.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise ValueError(f"{owner}: submit_args has no JSON schema: {error}") from error
    return model
