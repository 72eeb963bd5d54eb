"""Where time goes: each moment of a sample is in one phase, and what is not known is not made up."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from control_tower.cli.app import cli
from control_tower.logs.json_text import JsonObject
from control_tower.logs.timing import partition, sample_time
from tests.logs.log_making import at, call, seat, tool, write_log


def model(role: str | None, began: float, ended: float, **fields: Any) -> JsonObject:
    """A model's call that worked all the time."""
    times = {"timestamp": at(began), "completed": at(ended), "working_time": ended - began}
    return {"event": "model", "model": "demo/agent", "role": role, "output": {}, **times, **fields}


def span(
    id: str, type: str, began: float, ended: float, *inside: JsonObject, name: str = ""
) -> list[JsonObject]:
    """Events in a span."""
    begin = {"event": "span_begin", "id": id, "type": type, "name": name, "timestamp": at(began)}
    end = {"event": "span_end", "id": id, "timestamp": at(ended)}
    return [begin, *({**event, "span_id": id} for event in inside), end]


def usage(prompt: int, output: int, cost: float | None, *, cached: int = 0) -> JsonObject:
    """An answer with its token counts."""
    counts = {"input_tokens": prompt, "input_tokens_cache_read": cached, "output_tokens": output}
    stamped = {} if cost is None else {"total_cost": cost}
    return {
        "choices": [{"message": {}}],
        "usage": {**counts, "total_tokens": prompt + cached + output, **stamped},
    }


def played(id: str = "s", **fields: Any) -> JsonObject:
    """A sample of 16 seconds: 2 setup, 1 waiting, 3 drafting, 2 monitors, 3 tools, 2 scoring, 3 other."""
    events = [
        *span("i", "init", 0, 2),
        seat(call("c"), timestamp=at(3), completed=at(9)),
        model("hidden_untrusted", 3, 6, working_time=2, output=usage(100, 10, 0.5, cached=300)),
        model("hidden_untrusted", 5, 7, output=usage(50, 20, None)),
        model("monitor/quick", 7, 8, cache="read", output=usage(70, 1, 0.25)),
        *span("m", "ct_scope", 7, 9, model("trusted", 7, 9), name="monitor: quick (2)"),
        tool("c", began=9, ended=12),
        tool("d", "editor", began=10, ended=11),
        *span("s", "scorers", 13, 15, model("scorer", 13.5, 14, output=usage(10, 1, 0.125))),
    ]
    times = {"started_at": at(1), "completed_at": at(16)}
    return {"id": id, "epoch": 1, "events": events, **times, **fields}


PHASES = {
    "setup": 2,
    "waiting": 1,
    "model hidden_untrusted": 3,
    "monitors": 2,
    "tools": 3,
    "scoring": 2,
    "other": 3,
}


def header(**fields: Any) -> JsonObject:
    """A header of a run that took 20 seconds."""
    stats = {"started_at": at(0), "completed_at": at(20)}
    return {"eval": {"eval_id": "e", "metadata": {}}, "stats": stats, **fields}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two samples, one of them without events."""
    empty: JsonObject = {"id": "empty", "epoch": 2, "events": []}
    return write_log(tmp_path / "log.eval", header(), [played(), empty])


def timing(*words: str) -> Result:
    """Runs `ct timing`."""
    return CliRunner().invoke(cli, ["timing", *words], catch_exceptions=True)


def test_each_moment_counts_once() -> None:
    found, calls = sample_time(played())
    assert found is not None
    assert found.phases == pytest.approx(PHASES)
    assert found.seconds == pytest.approx(16)
    assert [(c.phase, c.what, c.began, c.seconds, c.waiting) for c in calls[:2]] == [
        ("model hidden_untrusted", "demo/agent", 3, 3, 1),
        ("model hidden_untrusted", "demo/agent", 5, 2, 0),
    ]


def test_monitors_that_looked_later_add_only_their_own_time() -> None:
    sample = played()
    sample["events"].append(model("monitor/strong", 1000, 1004))
    found, _ = sample_time(sample)
    assert found is not None
    assert found.phases == pytest.approx({**PHASES, "monitors": 6})


def test_a_sample_that_was_cut_off_ends_with_its_last_event() -> None:
    sample = played(completed_at=None)
    sample["events"] = [*sample["events"][:-3], tool("e", began=12, pending=True)]
    found, _ = sample_time(sample)
    assert found is not None
    assert found.seconds == pytest.approx(12)
    expected = {phase: seconds for phase, seconds in PHASES.items() if phase != "scoring"}
    assert found.phases == pytest.approx({**expected, "other": 1})


ORDER = ["scoring", "monitors", "tools", "other"]
SECOND = st.integers(0, 20)
STRETCHES = st.lists(st.tuples(SECOND, SECOND, st.sampled_from(ORDER)))


@given(STRETCHES)
def test_phases_sum_up_to_the_time_in_which_anything_ran(stretches: list[tuple[int, int, str]]) -> None:
    expected: dict[str, float] = {}
    for second in range(20):
        running = {phase for begin, end, phase in stretches if begin <= second < end}
        if running:
            first = min(running, key=ORDER.index)
            expected[first] = expected.get(first, 0) + 1
    assert partition([(float(a), float(b), phase) for a, b, phase in stretches]) == expected


def test_the_command_gives_every_number(log: Path) -> None:
    done = timing(str(log), "--format", "json", "--top", "1")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["phases"] == pytest.approx(PHASES)
    assert (found["clock_seconds"], found["sample_seconds"]) == (20, 16)
    assert found["untimed"] == ["empty (epoch 2)"]
    assert found["slowest_samples"] == ["s"]
    assert [c["seconds"] for c in found["slowest_calls"]] == [3]
    assert found["tokens"]["hidden_untrusted"] == {
        "calls": 2,
        "from_cache": 0,
        "uncounted": 0,
        "prompt": 450,
        "cache_read": 300,
        "output": 30,
        "reasoning": 0,
        "hit_rate": pytest.approx(300 / 450),
    }
    assert found["tokens"]["monitor/quick"]["from_cache"] == 1
    assert found["tokens"]["monitor/quick"]["hit_rate"] is None
    assert found["tokens"]["trusted"]["uncounted"] == 1
    assert found["cost_by_role"]["hidden_untrusted"] == {"usd": 0.5, "incomplete": True}
    assert found["cost_by_role"]["monitor/quick"] == {"usd": 0.0, "incomplete": False}


def test_the_table_is_for_people(log: Path) -> None:
    text = timing(str(log)).stdout
    assert "1 samples, 16.00 s together, 20.00 s by the clock" in text
    assert "without times: empty (epoch 2)" in " ".join(text.split())
    assert "model hidden_untrusted 3.00 18.8 % 3.00" in " ".join(text.split())
    assert "66.7 %" in text


def test_torn_logs_are_timed_as_far_as_they_go(log: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b"samples/empty_epoch_2.json") + 10])
    found = json.loads(timing(str(log), "--format", "json").stdout)
    assert found["clock_seconds"] is None
    assert found["phases"] == pytest.approx(PHASES)
    assert found["damage"] == 1


def test_a_time_that_is_none_is_named(tmp_path: Path) -> None:
    sample = played()
    sample["events"][2]["timestamp"] = "noon"
    done = timing(str(write_log(tmp_path / "log.eval", header(), [sample])))
    assert str(done.exception) == f"{tmp_path / 'log.eval'}: sample s: a time in it is not an ISO time"


def test_what_is_no_log_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    for path in (text, tmp_path / "nothing.eval"):
        done = timing(str(path))
        assert done.exit_code != 0
        assert str(path) in str(done.exception)
