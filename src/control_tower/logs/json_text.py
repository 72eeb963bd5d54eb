"""JSON as Inspect's logs hold it: NaN, infinities and lone surrogates survive a round trip."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, cast

from pydantic_core import from_json

JsonObject = dict[str, Any]


class BadJson(ValueError):
    """The bytes are not JSON; the text says where."""


def loads(data: bytes) -> Any:
    """What the text says.

    Raises:
        BadJson: It is not JSON, or nested too deeply to be read.
    """
    with suppress(ValueError):
        # Twice as fast, but for lone surrogates and deep nesting; its errors say less. A cache of all strings
        # would hold hundreds of MiB, none of keys a fifth more than one.
        return from_json(data, cache_strings="keys")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise BadJson(f"it is not JSON ({error})") from None
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 (at byte {error.start})") from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError as error:
        raise BadJson(f"it cannot be read ({error})") from None


def strict_loads(data: bytes) -> Any:
    """What a text of somebody else says, which NaN and infinity make no JSON.

    Raises:
        BadJson: It is not JSON, is nested too deeply, or has a number that is too large.
    """
    try:
        text = data.decode()
        return _STRICT.decode(text)
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 (at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise BadJson(f"it is not JSON ({_said(error)})") from None


def loads_lenient(data: bytes) -> Any:
    """What the text says; an integer that no float comes near of is infinite, as such a fraction is.

    Raises:
        BadJson: It is not JSON, or nested too deeply to be read.
    """
    try:
        return _LENIENT.decode(data.decode())
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 (at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise BadJson(f"it is not JSON ({_said(error)})") from None


def objects_in(parts: Iterable[bytes], longest: int) -> Iterator[JsonObject]:
    """The objects of a list, one at a time, however long the list is.

    Args:
        parts: The bytes of the list, in pieces of any size.
        longest: Characters that one object may take, and no more than twice as many are held.

    Raises:
        BadJson: It is not a list of objects, or one is longer or nested too deeply.
    """
    decode = codecs.getincrementaldecoder("utf-8")().decode
    pieces, text, at, tried = iter(parts), "", 0, 0
    expected, ended = _BEFORE_FIRST, False
    while True:
        start = expected.match(text, at)
        if start is not None and start["end"]:
            if text[start.end() :].strip() or any(piece.strip() for piece in pieces):
                raise BadJson("something follows the list")
            return
        if start is not None and len(text) - start.end("before") >= tried:
            try:
                row, at = _LENIENT.raw_decode(text, start.end("before"))
            except RecursionError:
                raise BadJson("it is nested too deeply") from None
            except ValueError as error:
                if ended:
                    raise BadJson(f"it is not a list of objects ({_said(error)})") from None
                if len(text) - at > longest:
                    raise BadJson(f"an object of its list does not end within {longest} characters") from None
                # Half of a long object is not tried again for every piece that comes.
                tried = 2 * (len(text) - start.end("before"))
            else:
                tried, expected = 0, _BEFORE_NEXT
                yield cast(JsonObject, row)
                continue
        if ended or (start is None and len(text) - at > _LONGEST_GAP):
            raise BadJson("it is not a list of objects")
        piece = next(pieces, None)
        ended = piece is None
        tried = 0 if ended else tried
        try:
            text, at = text[at:] + decode(piece or b"", ended), 0
        except UnicodeDecodeError:
            raise BadJson("it is not UTF-8") from None


def dumps(value: Any, *, allow_nan: bool = True) -> bytes:
    """`value` as compact UTF-8; all ASCII where it holds a lone surrogate, which UTF-8 cannot carry.

    Raises:
        ValueError: It holds a number that is not finite, and none is allowed.
    """
    options: Any = {"separators": (",", ":"), "allow_nan": allow_nan}
    try:
        return json.dumps(value, ensure_ascii=False, **options).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, **options).encode("ascii")


def child(value: JsonObject | None, key: str) -> JsonObject:
    """The object under a key; empty where there is none, or something else."""
    found: Any = value.get(key) if value else None
    return cast(JsonObject, found) if isinstance(found, dict) else {}


def children(value: JsonObject | None, key: str) -> list[JsonObject]:
    """The objects in the list under a key; anything else is left out."""
    found: Any = value.get(key) if value else None
    if not isinstance(found, list):
        return []
    items = cast("list[JsonObject]", found)
    return [item for item in items if isinstance(item, dict)]  # pyright: ignore[reportUnnecessaryIsInstance]


def texts(value: JsonObject | None, key: str) -> list[str]:
    """The texts in the list under a key; anything else is left out."""
    found: Any = value.get(key) if value else None
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return [item for item in items if isinstance(item, str)]


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _integer(text: str) -> int | float:
    """Arithmetic fails on integers that are beyond all floats."""
    return int(text) if len(text) < _LONGEST_INTEGER else float(text)


def _bounded(text: str) -> int:
    if len(text) >= _LONGEST_INTEGER:
        raise ValueError("a number is too large")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _said(error: ValueError | RecursionError) -> str:
    """What is wrong, without the text it is wrong with."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


_LONGEST_INTEGER = 300
_STRICT = json.JSONDecoder(parse_constant=_no_number, parse_int=_bounded, parse_float=_float)
_LENIENT = json.JSONDecoder(parse_int=_integer)
_BEFORE_FIRST = re.compile(r"(?P<before>\s*\[\s*)(?:(?P<end>\])|(?=\{))")
_BEFORE_NEXT = re.compile(r"(?P<before>\s*,\s*)(?=\{)|\s*(?P<end>\])")
_LONGEST_GAP = 64 * 1024
"""Characters that may stand between two objects."""
