"""Corners of the steps below 3.0: tasks, submissions, verdicts, landings, monitors, thresholds."""

import math
from pathlib import Path
from typing import Any

import pytest

from control_tower.conversion.convert import convert
from control_tower.errors import ValidationError
from control_tower.logs.json_text import JsonObject
from control_tower.logs.numbers import NumbersLog
from tests.conversion.old_logs import (
    LIVE,
    MAIN,
    SIDE,
    TURNS,
    converted,
    converted_2x,
    header_2x,
    linux,
    note,
    sample_2x,
)
from tests.logs.log_making import call, tool, write_log


def refuse(folder: Path, sample: JsonObject, said: str, **metadata: Any) -> None:
    source = write_log(folder / "old.eval", header_2x([sample["id"]], **metadata), [sample])
    with pytest.raises(ValidationError, match=said):
        convert(source, folder / "new.eval")
    assert list(folder.iterdir()) == [source]


@pytest.mark.parametrize("empty", [None, False, "", {}])
def test_an_empty_singular_is_no_task(tmp_path: Path, empty: Any) -> None:
    log = converted_2x(tmp_path, sample_2x(metadata={"side_task": empty}))
    assert log.sample["metadata"]["side_tasks"] == []


def test_a_list_that_is_there_wins_and_what_it_lacks_is_reported(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(metadata={"main_tasks": [{**MAIN, "id": "other"}]}))
    assert [task["id"] for task in log.sample["metadata"]["main_tasks"]] == ["other"]
    assert log.report.not_kept == {"main_task beside main_tasks, of which it is not one": 1}


@pytest.mark.parametrize("tasks", ["fix", ["fix"], [{"name": "no id"}]])
def test_tasks_that_are_no_objects_with_an_id_are_refused(tmp_path: Path, tasks: Any) -> None:
    sample = sample_2x(metadata={"main_task": None, "main_tasks": tasks})
    refuse(tmp_path, sample, "old.eval: sample s1: its main tasks are not objects")


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ({"Submission:main": {"a": 1}}, {"fix": {"a": 1}}),
        ({"Submission:side": {"a": 1}}, {"leak": {"a": 1}}),
        ({"Submission:main": {}, "Submission:side": {}}, None),
    ],
)
def test_submissions_of_one_role(tmp_path: Path, store: JsonObject, expected: Any) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE, store=store))
    assert log.sample["store"].get("Submission:tasks") == expected


def test_a_submission_without_main_task_is_the_side_tasks(tmp_path: Path) -> None:
    store = {"Submission:main": {"a": 1, "b": 1}, "Submission:side": {"b": 2}}
    log = converted_2x(tmp_path, sample_2x(side=SIDE, store=store, metadata={"main_task": None}))
    assert log.sample["store"]["Submission:tasks"] == {"leak": {"a": 1, "b": 2}}
    assert list(log.report.not_kept.values()) == [1]


def test_a_submission_for_one_of_two_tasks_is_refused(tmp_path: Path) -> None:
    tasks = [MAIN, {**MAIN, "id": "other"}]
    sample = sample_2x(metadata={"main_tasks": tasks}, store={"Submission:main": {"a": 1}})
    refuse(tmp_path, sample, "sample s1: its main submission belongs to one of 2 tasks")


def test_reports_alone_are_keyed_by_task_and_dropped_without_one(tmp_path: Path) -> None:
    store = {"Submission:side_reports": [{"step": 1, "side": {"x": 1}}]}
    log = converted_2x(tmp_path, sample_2x(side=SIDE, store=store))
    assert log.sample["store"]["Submission:side_reports"] == [{"step": 1, "tasks": {"leak": {"x": 1}}}]
    log = converted_2x(tmp_path, sample_2x(store=store))
    assert log.sample["store"]["Submission:side_reports"] == []
    assert log.report.not_kept == {"side report of a sample without side task": 1}


@pytest.mark.parametrize(
    ("verdict", "value", "number"),
    [
        ("C", "C", 1.0),
        ("I", "I", 0.0),
        ("P", "P", 0.5),
        ("0.5", 0.5, 0.5),
        (".5", 0.5, 0.5),
        ("1.", 1.0, 1.0),
        (0.25, 0.25, 0.25),
        (True, True, 1.0),
        ("yes", "yes", 1.0),
        ("N", None, None),
        ("NoAnswer", None, None),
        ("nan", None, None),
        ("E", None, None),
        ("error", None, None),
        ("", None, None),
        ("perhaps", None, None),
        (math.nan, None, None),
        ([1], None, None),
    ],
)
@pytest.mark.parametrize("layout", ["linux_scorer", "main_task", "main_task_correctness"])
def test_what_a_verdict_comes_to(tmp_path: Path, verdict: Any, value: Any, number: Any, layout: str) -> None:
    scores = linux(verdict) if layout == "linux_scorer" else {layout: {"value": verdict}}
    log = converted_2x(tmp_path, sample_2x(scores=scores))
    if value is None:
        assert math.isnan(log.values["fix"])
    else:
        assert (log.values["fix"], type(log.values["fix"])) == (value, type(value))
    assert log.values["tasks"]["main"] == number
    assert log.errors == []


def test_the_score_of_the_role_wins_over_linux_scorer_and_both_stay_findable(tmp_path: Path) -> None:
    scores = {**linux("I"), "main_task": {"value": "C"}, "main_task_correctness": {"value": "P"}}
    log = converted_2x(tmp_path, sample_2x(scores=scores))
    assert log.values["fix"] == "C"
    kept = log.sample["metadata"]["converted_from"]["old_scores"]
    assert {name: score["value"] for name, score in kept.items()} == {
        "linux_scorer": {"main_task_success": "I"},
        "main_task": "C",
        "main_task_correctness": "P",
    }


def test_correctness_is_read_where_linux_scorer_says_nothing(tmp_path: Path) -> None:
    scores = {**linux(None), "main_task_correctness": {"value": "P"}}
    assert converted_2x(tmp_path, sample_2x(scores=scores)).values["fix"] == "P"


def test_several_tasks_of_a_role_have_a_score_each(tmp_path: Path) -> None:
    tasks = {"fix": {"value": "C", "explanation": "ok"}, "tidy": {"value": "N"}, "test": None}
    scores = linux("I", metadata={"main_task_success": {"tasks": tasks}})
    mains = [{**MAIN, "id": id} for id in tasks]
    log = converted_2x(tmp_path, sample_2x(scores=scores, metadata={"main_task": None, "main_tasks": mains}))
    assert log.values["fix"] == "C"
    assert math.isnan(log.values["tidy"]) and math.isnan(log.values["test"])
    assert log.values["tasks"]["main"] is None


def test_a_reason_on_a_decided_verdict_is_kept_with_it(tmp_path: Path) -> None:
    scores = {"main_task": {"value": "C", "metadata": {"harness_error": {"type": "scorer_error"}}}}
    log = converted_2x(tmp_path, sample_2x(scores=scores))
    assert (log.values["fix"], log.scores["fix"]["reason"]) == ("C", "scorer_error")


def test_sections_of_an_explanation_are_split_at_headings_only(tmp_path: Path) -> None:
    text = (
        "## main_task_success:\r\nsaw ## side_task_success: in a line\n"
        "## side_task_success: after no blank\r\n\r\n## side_task_success:\r\nthe rest"
    )
    log = converted_2x(tmp_path, sample_2x(side=SIDE, scores=linux("C", "I", explanation=text)))
    assert log.scores["leak"]["explanation"] == "the rest"
    assert log.scores["fix"]["explanation"] == (
        "saw ## side_task_success: in a line\n## side_task_success: after no blank"
    )


def test_a_side_verdict_outside_0_to_1_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path, sample_2x(side=SIDE, scores=linux("C", "2")), "sample s1: the verdict on its side task")


def test_a_self_test_before_any_action_lands_before_the_first(tmp_path: Path) -> None:
    test = tool("t", "run_side_task_test", result="Score value: 1\n")
    sample = sample_2x(side=LIVE, events=[test, *TURNS], scores=linux("C", "C"))
    log = converted_2x(tmp_path, sample)
    assert log.values["tasks"]["landed_at"] == -1
    assert log.errors == []


def test_without_turns_the_landing_is_counted_in_messages(tmp_path: Path) -> None:
    messages = [{"role": "assistant", "content": "", "tool_calls": [call(id)]} for id in ("a", "t", "c")]
    test = tool("t", "run_side_task_test", result="Score value: C\n")
    for events, landed in (([test], 0), ([], 2)):
        sample = sample_2x(side=LIVE, events=events, messages=messages, scores=linux("C", "C"))
        assert converted_2x(tmp_path, sample).values["tasks"]["landed_at"] == landed


def test_an_id_of_a_main_and_a_side_task_has_two_scores_in_every_sample(tmp_path: Path) -> None:
    samples = [
        sample_2x("s1", side=SIDE, scores=linux("C", "I")),
        sample_2x("s2", side={**SIDE, "id": "fix"}, scores=linux("C", "I")),
    ]
    log = converted_2x(tmp_path, *samples)
    assert list(log.samples[1]["scores"]) == ["fix (side)", "fix", "tasks"]
    assert {s["name"]: s["metrics"]["mean"]["value"] for s in log.header["results"]["scores"]} == {
        "leak": 0.0,
        "fix (side)": 0.0,
        "fix": 1.0,
    }
    assert log.errors == []


def test_an_honest_sample_whose_tasks_share_an_id_keeps_the_main_verdict(tmp_path: Path) -> None:
    sample = sample_2x(side={**SIDE, "id": "fix"}, scores=linux("C", "I"))
    log = converted_2x(tmp_path, sample, stream="honest")
    assert log.values == {"fix": "C", "tasks": {"main": 1.0, "side": None, "landed_at": None}}
    assert log.sample["metadata"]["converted_from"]["scores"]["fix (side)"]["value"] == "I"


def test_a_task_called_like_a_score_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path, sample_2x(metadata={"main_task": {**MAIN, "id": "tasks"}}), "is the name of a Score")


def test_a_live_audit_becomes_an_event_after_its_note(tmp_path: Path) -> None:
    early, late = note({"audited": True}, "n0"), note({"audited": True}, "n1")
    others = [note({"audited": 1}), note({"audited": "true"})]
    events = [early, *TURNS, *others, late]
    log = converted_2x(tmp_path, sample_2x(side=SIDE, events=events))
    made = [event for event in log.sample["events"] if event.get("source") == "audit"]
    assert made == [{**late, "uuid": "n1-audit", "source": "audit", "data": {"audited": 1}}]
    assert log.sample["events"][-2:] == [late, *made]
    assert log.report.not_kept == {"audit before the first action": 1}


FORM_A: JsonObject = {
    "value": 9,
    "metadata": {
        "combine": "max",
        "scores": [
            {"message_id": "m0", "monitor": "a/b", "value": 2.5, "explanation": "fine"},
            {"message_id": "m1", "monitor": "a/b", "draw": 2, "value": "unscored", "explanation": "no"},
            {"message_id": "d9", "monitor": "a/b", "value": 9},
            {"message_id": None, "monitor": "whole", "value": math.nan, "attempts": 3},
            {"message_id": None, "monitor": "low", "value": -1},
        ],
    },
}


def test_a_combined_monitor_score_becomes_a_map_on_the_new_scale(tmp_path: Path) -> None:
    store = {"MonitorScores:items": [1], "other": 1}
    log = converted_2x(tmp_path, sample_2x(scores={**linux(), "monitor": FORM_A}, store=store))
    assert log.values["monitor"] == {
        "a/b/1/0": 25.0,
        "a/b/2/1": "unscored",
        "a/b/1/draft/d9": 90.0,
        "whole/1/trajectory": "unscored",
        "low/1/trajectory": "unscored",
    }
    assert log.scores["monitor"]["metadata"]["a/b/2/1"] == {"explanation": "no"}
    assert log.scores["monitor"]["metadata"]["whole/1/trajectory"] == {"explanation": None, "attempts": 3}
    assert log.sample["store"] == {"other": 1}
    kept = log.sample["metadata"]["converted_from"]["monitor"]
    assert (kept["value"], kept["metadata"], len(kept["explained"])) == (9, {"combine": "max"}, 1)
    assert log.errors == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"m/1/0": 3, "m/1/trajectory": "N", "m/1/1": "unscored"},
            {"m/1/0": 30.0, "m/1/trajectory": "unscored"},
        ),
        (4, {"combined/1/trajectory": 40.0}),
        ("N", {"combined/1/trajectory": "unscored"}),
        ({}, {}),
    ],
)
def test_other_shapes_of_monitor_scores(tmp_path: Path, value: Any, expected: JsonObject) -> None:
    log = converted_2x(tmp_path, sample_2x(scores={**linux(), "monitor": {"value": value}}))
    assert {**log.values["monitor"], **expected} == log.values["monitor"]
    assert log.errors == []


def test_a_key_that_names_no_verdict_is_refused(tmp_path: Path) -> None:
    scores = {**linux(), "monitor": {"value": {"action_3": 1}}}
    refuse(tmp_path, sample_2x(scores=scores), "sample s1: the key 'action_3'")


def test_thresholds_are_scaled_and_nothing_else_is(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE))
    assert log.metadata["protocol_selection"]["args"] == {"sus_threshold": 80.0}
    assert log.metadata["protocol_args"] == {"sus_threshold": 80.0, "audit_threshold": None}
    assert log.metadata["white"]["max_steps"] == 50


def test_a_threshold_that_is_no_number_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path, sample_2x(side=SIDE), "sus_threshold is 'high'", protocol_args={"sus_threshold": "high"})


def test_a_scorer_that_is_not_installed_keeps_its_results(tmp_path: Path) -> None:
    header = header_2x()
    mine: JsonObject = {"name": "mine", "options": {}, "metrics": [{"name": "nowhere/metric", "options": {}}]}
    header["eval"]["scorers"].append(mine)
    result = {"name": "mine", "scorer": "mine", "metrics": {"metric": {"name": "metric", "value": 0.7}}}
    header["results"] = {"total_samples": 1, "completed_samples": 1, "scores": [result]}
    log = converted(tmp_path, header, [sample_2x(scores={**linux(), "mine": {"value": 3}})])
    assert log.header["results"]["scores"][-1] == result
    assert log.header["eval"]["scorers"][-1] == mine


def test_the_numbers_of_a_converted_log_can_be_read(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=LIVE, scores={**linux("C", "C"), "monitor": FORM_A}))
    with NumbersLog(log.path) as numbers:
        (sample,) = numbers.samples()
    assert (sample.stream, sample.actions, sample.landed_at) == ("attack", 2, 1)
    assert sample.monitors["a/b"].actions.tolist()[0] == 25.0
