"""JSON of others: read strictly where it is asked for, long lists one object at a time."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_tower.logs.json_text import BadJson, loads_lenient, objects_in, strict_loads

SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=6)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@settings(max_examples=40)
@given(ROWS, st.integers(1, 50), st.sampled_from([None, 1]), st.booleans())
def test_lists_are_read_whatever_their_pieces(
    rows: list[Any], size: int, indent: int | None, escaped: bool
) -> None:
    data = json.dumps(rows, indent=indent, ensure_ascii=escaped).encode()
    assert list(objects_in(pieces(data, size), 10_000)) == rows


@settings(max_examples=40)
@given(ROWS, st.data())
def test_a_list_that_is_cut_is_none(rows: list[Any], data: st.DataObject) -> None:
    whole = json.dumps(rows).encode()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BadJson):
        list(objects_in(pieces(cut, 7), 10_000))


def test_an_object_may_not_be_endless() -> None:
    endless = (b'[{"a":"' if number == 0 else b"x" * 100 for number in range(10**9))
    with pytest.raises(BadJson, match="does not end within 1000 characters"):
        list(objects_in(endless, 1000))
    with pytest.raises(BadJson):
        list(objects_in((b" " * 1000 for _ in range(10**9)), 1000))


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "-Infinity", "1e999", "1" * 400, "{", "[" * 100_000, ""]
)
def test_what_strictly_is_no_json(text: str) -> None:
    with pytest.raises(BadJson):
        strict_loads(text.encode())


def test_strict_json_is_read() -> None:
    assert strict_loads(b'{"a": [1, -2.5, null, "\\ud83d"]}') == {"a": [1, -2.5, None, "\ud83d"]}
    with pytest.raises(BadJson, match="not UTF-8"):
        strict_loads(b'"\xff"')


def test_integers_beyond_all_floats_are_infinite_in_logs() -> None:
    assert loads_lenient(b"[" + b"1" * 400 + b", -" + b"1" * 400 + b"]") == [math.inf, -math.inf]
