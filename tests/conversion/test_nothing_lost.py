"""Whatever an old log holds is in the converted one, and the converted one is well formed."""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.log import read_eval_log

from control_tower.conversion.convert import convert
from control_tower.logs.json_text import JsonObject
from tests.conversion.old_logs import (
    LIVE,
    SIDE,
    TALK,
    TURNS,
    Log,
    converted_2x,
    converted_old,
    linux,
    note,
    remark,
    said,
    sample_2x,
    sample_old,
)
from tests.logs.log_making import call, info

words = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["\ud800", "attachment://h1"])
verdicts = st.sampled_from(["C", "I", "P", "N", "E", "0.5", 0.25, 1, math.nan, True, "", None])
kept_fields = st.fixed_dictionaries(
    {},
    optional={
        "started_at": st.just("2025-03-01T10:00:00+00:00"),
        "completed_at": st.just("2025-03-01T11:00:00+00:00"),
        "total_time": st.floats(0, 1e6),
        "working_time": st.floats(0, 1e6),
        "uuid": st.uuids().map(str),
        "attachments": st.dictionaries(st.sampled_from(["h1", "h2"]), words),
        "role_usage": st.just({"untrusted": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}),
        "limit": st.just({"type": "token", "limit": 5}),
        "error_retries": st.just([{"message": "m", "traceback": "t", "traceback_ansi": "t"}]),
        "files": st.lists(st.just("notes.txt"), max_size=1),
        "error": st.just({"message": "m", "traceback": "t", "traceback_ansi": "t"}),
    },
)
facts = st.dictionaries(words, words | st.integers() | st.booleans(), max_size=2).map(note)


@st.composite
def samples_2x(draw: Any) -> JsonObject:
    side = draw(st.sampled_from([None, SIDE, LIVE]))
    scores: JsonObject = draw(
        st.sampled_from([{}, linux(draw(verdicts), draw(verdicts) if side else None, explanation="why")])
    )
    for name in draw(st.sets(st.sampled_from(["main_task", "main_task_correctness", "mine", "audit"]))):
        scores = {**scores, name: {"value": draw(verdicts.filter(lambda v: v is not None)), "answer": "a"}}
    events = [*TURNS, *draw(st.lists(facts, max_size=3))]
    store = draw(st.dictionaries(st.sampled_from(["a", "Submission:submitted", "x:y"]), st.booleans()))
    messages = draw(st.lists(words.map(lambda t: {"role": "user", "content": t}), max_size=3))
    return sample_2x(
        side=side, scores=scores, events=events, store=store, messages=messages, **draw(kept_fields)
    )


@st.composite
def samples_old(draw: Any) -> JsonObject:
    turns = [
        said(draw(words), *(call(f"c{n}-{k}") for k in range(draw(st.integers(0, 2)))), old=draw(words))
        for n in range(draw(st.integers(0, 4)))
    ]
    remarks = [
        remark(draw(words), sus_score=draw(st.integers(-1, 10))) for _ in range(draw(st.integers(0, 2)))
    ]
    messages = [*TALK, *draw(st.permutations([*turns, *remarks]))]
    scores = {**linux("C", "I"), "monitor_j": {"value": draw(st.integers(0, 10)), "answer": draw(words)}}
    fields = {**draw(kept_fields), "events": draw(st.lists(words.map(lambda t: info("x", t)), max_size=2))}
    return sample_old(messages, scores=scores, **fields)


def flat(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def check_kept(old: JsonObject, log: Log, *, but: set[str]) -> None:
    """Every field of a sample is there as it was, but for those that conversion works on."""
    for key in old.keys() - but:
        assert flat(log.sample[key]) == flat(old[key]), key


def scores_kept(old: JsonObject, log: Log) -> None:
    source = log.sample["metadata"]["converted_from"]
    for name, score in old["scores"].items():
        places = [log.scores, source.get("old_scores", {}), source.get("monitor_scores", {})]
        found = [place[name] for place in places if name in place]
        assert any(same(one, score) for one in found) or name == "linux_scorer", name


def same(found: JsonObject, score: JsonObject) -> bool:
    return all(flat(found.get(key)) == flat(value) for key, value in score.items())


@settings(max_examples=25, deadline=None)
@given(samples_2x())
def test_nothing_of_a_2x_sample_is_lost(sample: JsonObject) -> None:
    with TemporaryDirectory() as folder:
        log = converted_2x(Path(folder), sample)
        check_kept(sample, log, but={"metadata", "scores", "events", "store"})
        renamed = [e for e in log.sample["events"] if e.get("source") != "audit"]
        old = json.loads(json.dumps(sample["events"]).replace("eval2/", "eval/"))
        assert flat(renamed) == flat(old)
        assert log.sample["store"].items() >= sample["store"].items()
        scores_kept(sample, log)
        again = convert(Path(folder) / "old.eval", Path(folder) / "again.eval")
        assert again.target.read_bytes() == log.path.read_bytes()
        assert [e for e in log.errors if "no Score 'tasks'" not in e and "is None" not in e] == []
        assert read_eval_log(str(log.path)).samples


@settings(max_examples=25, deadline=None)
@given(samples_old())
def test_nothing_of_a_sample_without_version_is_lost(sample: JsonObject) -> None:
    with TemporaryDirectory() as folder:
        log = converted_old(Path(folder), sample)
        check_kept(sample, log, but={"id", "input", "target", "metadata", "scores", "events", "messages"})
        first = log.sample["events"][0]
        rest: JsonObject = first["data"] if first.get("source") == "converted_from" else {}
        assert flat(rest.get("events", [])) == flat(sample["events"])
        messages = [m["content"] for m in [*log.sample["messages"], *rest.get("messages", [])]]
        assert sorted(map(flat, messages)) == sorted(flat(m["content"]) for m in sample["messages"])
        scores_kept(sample, log)
        again = convert(Path(folder) / "old.eval", Path(folder) / "again.eval")
        assert again.target.read_bytes() == log.path.read_bytes()
        assert log.errors == []
        assert read_eval_log(str(log.path)).samples
