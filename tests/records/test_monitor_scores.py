"""The keys of the `monitor` Score and how it is made of verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.errors import ValidationError
from control_tower.records.monitor_scores import MonitorEntry, MonitorKey, monitor_score

NAMES = st.from_regex(r"[a-z0-9.+-]+(/[a-z0-9.+-]+)*", fullmatch=True)


@given(NAMES, st.integers(1, 99), st.one_of(st.none(), st.integers(0, 999)))
def test_keys_of_actions_and_trajectories_are_read_as_written(
    name: str, draw: int, action: int | None
) -> None:
    key = MonitorKey(name, draw, action)
    assert MonitorKey.parse(str(key)) == key


@given(NAMES, st.integers(1, 99), st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True))
def test_keys_of_drafts_are_read_as_written(name: str, draw: int, draft: str) -> None:
    key = MonitorKey(name, draw, draft=draft)
    assert MonitorKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        ("simple/1/0", MonitorKey("simple", 1, 0)),
        ("a/b/2/trajectory", MonitorKey("a/b", 2)),
        ("7/1/12", MonitorKey("7", 1, 12)),
        ("draft/1/3", MonitorKey("draft", 1, 3)),
        ("m/draft/1/3", MonitorKey("m/draft", 1, 3)),
        ("m/1/draft/77", MonitorKey("m", 1, draft="77")),
        ("m/1/draft/trajectory", MonitorKey("m", 1, draft="trajectory")),
    ],
)
def test_keys_are_parsed_from_the_right(key: str, parsed: MonitorKey) -> None:
    assert MonitorKey.parse(key) == parsed


@pytest.mark.parametrize(
    "key", ["", "simple", "simple/0", "simple/x/0", "simple/0/0", "/1/0", "a/1/-1", "a/1/1.5"]
)
def test_anything_else_is_no_key(key: str) -> None:
    with pytest.raises(ValidationError, match="convert the log"):
        MonitorKey.parse(key)


def test_the_score_is_made_of_the_entries() -> None:
    entries = [
        MonitorEntry("m0", "a", 1, 7),
        MonitorEntry("m1", "a", 1, None, "refused", 3),
        MonitorEntry("m1", "a", 1, 9.5),
        MonitorEntry("gone", "a/b", 2, None, "failed", 3),
        MonitorEntry(None, "t", 1, None, "no words"),
    ]
    restored = [MonitorEntry.from_json(entry.as_json()) for entry in entries]
    assert restored == entries
    value, metadata = monitor_score(restored, {"m0": 0, "m1": 1})
    assert value == {
        "a/1/0": 7.0,
        "a/1/1": 9.5,
        "a/b/2/draft/gone": "unscored",
        "t/1/trajectory": "unscored",
    }
    assert metadata == {
        "a/b/2/draft/gone": {"explanation": "failed", "attempts": 3},
        "t/1/trajectory": {"explanation": "no words"},
    }
    assert monitor_score([], {}) == ({}, {})


@pytest.mark.parametrize("value", [True, "9", None, float("nan"), float("inf"), [1], "unscored"])
def test_what_is_no_number_is_unscored(value: object) -> None:
    entry = MonitorEntry.from_json({"message_id": "m", "monitor": "a", "draw": 1, "value": value})
    assert entry.as_json()["value"] == "unscored"
