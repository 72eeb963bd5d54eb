"""Strict JSON: what a fleet writes any parser reads, and what it reads is what was meant."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

M = TypeVar("M", bound="Wire")


class Unreadable(ValueError):
    """A document or a message is not what it should be."""


class Wire(BaseModel):
    """A document or message; fields that are not known are ignored, because others may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def text(self) -> str:
        """As one line of strict JSON."""
        try:
            return self.model_dump_json()
        except PydanticSerializationError:
            return dumps(self.model_dump())

    @classmethod
    def read(cls: type[M], data: bytes | str) -> M:
        """What a text says.

        Raises:
            Unreadable: It is no strict JSON, or not of this kind.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise Unreadable(f"{cls.__name__}: {error.errors()[0]['msg']}") from None


def dumps(value: Any) -> str:
    """One line of JSON that every parser takes: numbers that are not finite become null, halves of characters
    a visible escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
        return text
    except ValueError:
        return json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _clean(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in cast("list[Any]", value)]
    return value
