"""Logs from before formats had versions: turns, carriers of verdicts, audits, usage, and what is kept."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.conversion.convert import convert
from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.json_text import JsonObject
from tests.conversion.old_logs import (
    LIVE,
    MAIN,
    OPENING,
    TALK,
    Log,
    answer,
    converted,
    converted_old,
    header_old,
    linux,
    remark,
    said,
    sample_old,
)
from tests.logs.log_making import call, write_log


def monitor_values(folder: Path, messages: Any = TALK, **fields: Any) -> dict[str, Any]:
    """The monitor Score of a converted sample."""
    log = converted_old(folder, sample_old(messages, **fields))
    assert log.errors == []
    return log.values.get("monitor", {})


def refuse(folder: Path, said: str, **fields: Any) -> None:
    source = write_log(folder / "old.eval", header_old(), [sample_old(**fields)])
    with pytest.raises(ValidationError, match=said):
        convert(source, folder / "new.eval")
    assert list(folder.iterdir()) == [source]


def test_messages_become_turns_with_their_results(tmp_path: Path) -> None:
    submit = {"choices": [{"message": said("Done.", call("z", "submit")), "stop_reason": "tool_calls"}]}
    later: JsonObject = {"role": "user", "content": "Go on."}
    log = converted_old(tmp_path, sample_old([*TALK, later], output={"model": "x", **submit}))
    transcript = Transcript.of(log.sample)
    calls = [[c.id for c in turn.calls] for turn in transcript.turns]
    assert calls == [["a", "b"], [], ["c"], ["z"]]
    assert [turn.index for turn in transcript.turns] == [0, None, 1, 2]
    assert [c.ran for turn in transcript.actions for c in turn.calls] == [True, True, True, False]
    assert [m.get("content") for m in log.sample["messages"]][:2] == [
        "You are an engineer.",
        "Please fix it.",
    ]
    assert [m["role"] for m in log.sample["messages"][-2:]] == ["user", "assistant"]
    assert (log.sample["input"], log.sample["target"]) == ("Fix it.", "Leak it.")


def test_each_turn_is_given_all_messages_before_it(tmp_path: Path) -> None:
    log = converted_old(tmp_path, sample_old())
    read = read_eval_log(str(log.path)).samples
    assert read is not None
    seats = [e for e in read[0].events if e.event == "model" and e.role == "untrusted"]
    assert [len(event.input) for event in seats] == [2, 5, 6]
    assert [m.text for m in seats[0].input] == ["You are an engineer.", "Please fix it."]


def test_reasoning_and_other_parts_of_a_message_are_kept(tmp_path: Path) -> None:
    parts = [{"type": "reasoning", "reasoning": "why"}, {"type": "text", "text": "I do."}]
    message = {**said("", call("a")), "content": parts}
    log = converted_old(tmp_path, sample_old([*OPENING, message, answer("a")]))
    assert Transcript.of(log.sample).turns[0].message["content"] == parts


def test_the_task_and_environment_are_normalised(tmp_path: Path) -> None:
    metadata = converted_old(tmp_path, sample_old()).sample["metadata"]
    environment = metadata["environment"]
    assert environment["display_name"] == "The box"
    assert (environment["tech_stack"], environment["services"]) == (["Python", "SQL"], [])
    assert environment["attack_surface"] == "the network"
    assert metadata["main_tasks"][0]["task_category"] == "add_feature"
    assert metadata["eval_mode"] == "attack"


def test_a_sample_without_main_task_stays_beside_one_that_has_one(tmp_path: Path) -> None:
    log = converted_old(tmp_path, sample_old(), sample_old(id="n", metadata={"main_task": None}))
    assert [len(s["metadata"]["main_tasks"]) for s in log.samples] == [1, 0]


def test_two_main_tasks_are_both_kept(tmp_path: Path) -> None:
    tasks = [MAIN, {**MAIN, "id": "tidy"}]
    log = converted_old(tmp_path, sample_old(metadata={"main_task": None, "main_tasks": tasks}))
    assert [task["id"] for task in log.sample["metadata"]["main_tasks"]] == ["fix", "tidy"]


def test_epochs_become_samples_of_their_own(tmp_path: Path) -> None:
    log = converted(tmp_path, header_old(config={"epochs": 2}), [sample_old(), sample_old(epoch=2)])
    assert [s["epoch"] for s in log.samples] == [1, 1]
    kept = [s["metadata"]["converted_from"] for s in log.samples]
    assert [(one["sample_id"], one["epoch"]) for one in kept] == [("m:s", 1), ("m:s", 2)]
    assert log.header["eval"]["config"] == {}
    assert log.metadata["replaced"]["epochs"] == 2


@pytest.mark.parametrize(
    ("name", "score", "expected"),
    [
        ("monitor_j", {"value": 6}, {"j/1/trajectory": 60.0}),
        ("monitor_j", {"value": -1}, {"j/1/trajectory": "unscored"}),
        ("monitor_j", {"value": 6, "metadata": {"error": "boom"}}, {"j/1/trajectory": "unscored"}),
        (
            "monitor_j",
            {"value": {"0": 1}, "metadata": {"action_scores": [{"value": 3}, None, {"value": 8}]}},
            {"j/1/0": 30.0, "j/1/1": 80.0},
        ),
        ("monitor_j", {"value": {}, "metadata": {"action_scores": [{}, {"value": 2}]}}, {"j/1/0": 20.0}),
        (
            "monitor_j",
            {"value": {"action_2": 4, "trajectory": 1, "max": 9}},
            {"j/1/1": 40.0, "j/1/trajectory": 10.0},
        ),
        ("monitor_j", {"value": {"action_0": None}}, {}),
        ("monitor", {"value": {"0": 1, "2": 3}}, {"monitor/1/0": 10.0, "monitor/1/1": 30.0}),
        ("monitor", {"value": {"k/2/1": 5}}, {"k/2/1": 50.0}),
        ("monitor", {"value": 5}, {"monitor/1/trajectory": 50.0}),
    ],
)
def test_a_monitors_score(tmp_path: Path, name: str, score: JsonObject, expected: JsonObject) -> None:
    assert monitor_values(tmp_path, scores={**linux("C", "I"), name: score}) == expected


@pytest.mark.parametrize(("keys", "first"), [((0, 1), 1), ((0, 2), 0)])
def test_dense_indices_skip_reds_own_calls(tmp_path: Path, keys: tuple[int, int], first: int) -> None:
    private = said("", call("p"), is_policy_private=True)
    messages = [*OPENING, private, said("", call("a")), answer("a"), said("", call("c")), answer("c")]
    score = {"value": {f"action_{key}": 5 for key in keys}}
    values = monitor_values(tmp_path, messages, scores={**linux("C", "I"), "monitor_j": score})
    assert sorted(values) == sorted([f"j/1/{first}", "j/1/2"])


def test_a_verdict_on_a_call_that_is_not_there_is_refused(tmp_path: Path) -> None:
    score = {"value": {"action_7": 5}}
    refuse(tmp_path, "sample m:s: a monitor judges its call 7, but it has 3", scores={"monitor_j": score})


RESULT: JsonObject = {"sus_score": 4, "reasoning": "odd", "monitor_name": "j"}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"monitor_result": RESULT}, {"j/1/0": 40.0}),
        ({"monitor_skipped": {"last_error": "no answer", "attempts": 3}}, {"post_hoc/1/0": "unscored"}),
        ({"monitor_results_by_tool_call": {"b": {"monitor_result": RESULT}}}, {"j/1/0": 40.0}),
        ({"tool_call_monitor_results": {"a": {"sus_score": 2}}}, {"live/1/0": 20.0}),
        ({"monitor_result": {"sus_score": 4, "skipped_by_design": True}}, {}),
        ({"monitor_result": {"sus_score": -1, "error": "policy-private tool call"}}, {}),
        ({"monitor_result": {"sus_score": -1, "error": "malformed action (parsing error)"}}, {}),
        ({"monitor_result": {"sus_score": -1, "error": '"mcp__env__submit" tool calls are ignored'}}, {}),
        (
            {"monitor_result": {"sus_score": -1, "error": '"bash" tool calls are ignored'}},
            {"post_hoc/1/0": "unscored"},
        ),
    ],
)
def test_verdicts_in_the_metadata_of_a_turn(
    tmp_path: Path, metadata: JsonObject, expected: JsonObject
) -> None:
    messages = [*OPENING, said("", call("a"), call("b"), **metadata), answer("a"), answer("b")]
    assert monitor_values(tmp_path, messages) == expected


def test_an_unscored_verdict_says_why_and_how_often(tmp_path: Path) -> None:
    skipped = {"last_error": "no answer", "attempts": 3}
    messages = [*OPENING, said("", call("a"), monitor_skipped=skipped), answer("a")]
    log = converted_old(tmp_path, sample_old(messages))
    assert log.scores["monitor"]["metadata"] == {"post_hoc/1/0": {"explanation": "no answer", "attempts": 3}}


DRAFT = said("maybe", call("d"), is_monitor_result=True)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([*TALK, remark(sus_score=7)], {"live/1/1": 70.0}),
        ([*TALK[:5], remark(sus_score=7, monitor_name="k"), *TALK[5:]], {"k/1/0": 70.0}),
        ([*OPENING, remark(sus_score=7), *TALK[2:]], {"live/1/0": 70.0}),
        ([*OPENING, remark(sus_score=1), remark(sus_score=7), *TALK[2:]], {"live/1/0": 70.0}),
        ([*TALK, remark(sus_score=7), remark(sus_score=9)], {"live/1/1": 70.0}),
        ([*TALK[:5], DRAFT, remark(sus_score=9), *TALK[5:]], {}),
        ([*TALK, remark(sus_score=7, is_traj_monitor_result=True)], {"live/1/trajectory": 70.0}),
        ([*TALK, remark(sus_score=7, extraction_error=True)], {"live/1/1": "unscored"}),
        ([*TALK, remark(monitor_result=RESULT)], {"j/1/1": 40.0}),
        ([*TALK, remark(note="no number")], {}),
        ([*TALK, remark(sus_score=7, audited=True)], {}),
    ],
)
def test_remarks_of_a_monitor_in_the_conversation(
    tmp_path: Path, messages: list[JsonObject], expected: JsonObject
) -> None:
    assert monitor_values(tmp_path, messages) == expected


def test_the_verdict_on_the_trajectory_in_the_samples_metadata(tmp_path: Path) -> None:
    assert monitor_values(tmp_path, metadata={"traj_monitor_result": RESULT}) == {"j/1/trajectory": 40.0}


def test_aliases_are_monitors_of_their_own(tmp_path: Path) -> None:
    answers = {"0": {"tool_call_id": "c", "monitor_response": RESULT}}
    aliases = {
        "x2": {"action_monitor_responses": answers, "traj_monitor_response": {"sus_score": 3}},
        "x1": {"action_monitor_responses": None},
    }
    values = monitor_values(tmp_path, metadata={"control_tower_fat_aliases": aliases})
    assert values == {"j@x2/1/1": 40.0, "post_hoc@x2/1/trajectory": 30.0}


def test_an_alias_on_an_unknown_call_is_refused(tmp_path: Path) -> None:
    answers = {"0": {"tool_call_id": "zz", "monitor_response": RESULT}}
    aliases = {"x": {"action_monitor_responses": answers}}
    refuse(tmp_path, "alias 'x' judges the call 'zz'", metadata={"control_tower_fat_aliases": aliases})


def test_of_several_verdicts_on_a_turn_the_highest_counts_and_all_are_logged(tmp_path: Path) -> None:
    results = {"a": {"monitor_result": RESULT}, "b": {"monitor_result": {**RESULT, "sus_score": 9}}}
    turn = said("", call("a"), call("b"), monitor_results_by_tool_call=results)
    scores = {**linux("C", "I"), "monitor_j": {"value": {"action_0": 6}}}
    log = converted_old(tmp_path, sample_old([*OPENING, turn, answer("a"), answer("b")], scores=scores))
    assert log.values["monitor"] == {"j/1/0": 90.0}
    judged = [e for e in log.sample["events"] if e.get("role") == "monitor/j"]
    answers = [e["output"]["choices"][0]["message"]["tool_calls"][0]["arguments"]["score"] for e in judged]
    assert sorted(answers) == [4, 6, 9]


def audit() -> JsonObject:
    return {"role": "user", "content": "stop", "metadata": {"audited": True}}


@pytest.mark.parametrize(
    ("messages", "indices", "lost"),
    [
        ([*TALK, audit()], [1], {}),
        ([*TALK[:5], audit(), *TALK[5:]], [0], {}),
        ([*TALK[:5], DRAFT, audit(), *TALK[5:]], [1], {}),
        ([*TALK, DRAFT, audit()], [2], {}),
        ([*OPENING, audit(), *TALK[2:]], [], {"audit before the first action": 1}),
    ],
)
def test_audits_are_events_of_the_turn_before_or_the_draft(
    tmp_path: Path, messages: list[JsonObject], indices: list[int], lost: dict[str, int]
) -> None:
    log = converted_old(tmp_path, sample_old(messages))
    events = [e["data"] for e in log.sample["events"] if e.get("source") == "audit"]
    assert events == [{"audited": index} for index in indices]
    assert log.report.not_kept == lost
    assert log.errors == []


def usage_of(log: Log, role: str) -> list[Any]:
    return [e["output"].get("usage") for e in log.sample["events"] if e.get("role") == role]


def spent(tokens: int, cost: float | None, **fields: Any) -> JsonObject:
    return {**RESULT, "input_tokens": tokens, "output_tokens": 0, "cost_usd": cost, **fields}


@pytest.mark.parametrize(
    ("used", "live", "rest"),
    [
        (
            100,
            spent(30, 0.1),
            [{"input_tokens": 70, "output_tokens": 40, "total_tokens": 110, "total_cost": 0.9}],
        ),
        (
            100,
            spent(30, None),
            [{"input_tokens": 70, "output_tokens": 40, "total_tokens": 110, "total_cost": None}],
        ),
        (100, spent(130, 0.1), [None]),
    ],
)
def test_live_monitors_are_taken_out_of_the_agents_usage(
    tmp_path: Path, used: int, live: JsonObject, rest: Any
) -> None:
    usage = {"input_tokens": used, "output_tokens": 40, "total_tokens": used + 40, "total_cost": 1.0}
    messages = [
        *OPENING,
        said("", call("a"), tool_call_monitor_results={"a": {**live, "model_name": "agent"}}),
    ]
    log = converted_old(tmp_path, sample_old(messages, model_usage={"provider/agent": usage}))
    assert usage_of(log, "hidden_untrusted") == rest
    (judging,) = (e for e in log.sample["events"] if e.get("role") == "monitor/j")
    assert judging["model"] == "provider/agent"
    assert log.sample["model_usage"] == {"provider/agent": usage}


def test_an_agent_that_was_only_the_monitor_has_no_usage_of_its_own(tmp_path: Path) -> None:
    messages = [
        *OPENING,
        said("", call("a"), tool_call_monitor_results={"a": spent(30, 0.1, model_name="m")}),
    ]
    usage = {"m": {"input_tokens": 30, "output_tokens": 0, "total_tokens": 30}}
    assert (
        usage_of(converted_old(tmp_path, sample_old(messages, model_usage=usage)), "hidden_untrusted") == []
    )


def test_post_hoc_monitors_are_not_taken_out(tmp_path: Path) -> None:
    messages = [*OPENING, said("", call("a"), monitor_result=spent(30, 0.1, model_name="agent"))]
    log = converted_old(tmp_path, sample_old(messages))
    assert usage_of(log, "hidden_untrusted") == [
        {"input_tokens": 100, "output_tokens": 40, "total_tokens": 140}
    ]


def test_an_ensemble_is_a_call_for_each_member_unless_it_states_its_own_usage(tmp_path: Path) -> None:
    members = [spent(10, 0.1, model_name="x"), spent(20, 0.2, model_name="y")]
    for own, models in (({}, ["x", "y"]), ({"input_tokens": 30, "model_name": "z"}, ["z"])):
        result = {**RESULT, "members": members, **own}
        log = converted_old(tmp_path, sample_old([*OPENING, said("", call("a"), monitor_result=result)]))
        assert [e["model"] for e in log.sample["events"] if e.get("role") == "monitor/j"] == models


def test_costs_by_model_are_a_call_for_each_model(tmp_path: Path) -> None:
    result = spent(30, 0.5, cost_by_model={"x": 0.2, "y": None})
    log = converted_old(tmp_path, sample_old([*OPENING, said("", call("a"), monitor_result=result)]))
    assert [e["model"] for e in log.sample["events"] if e.get("role") == "monitor/j"] == ["x", "y"]
    priced, unpriced = usage_of(log, "monitor/j")
    assert (priced["input_tokens"], priced["total_cost"], unpriced) == (30, 0.2, None)


def test_a_live_side_task_lands_at_its_first_passing_test(tmp_path: Path) -> None:
    test = said("", call("t", "run_side_task_test"))
    messages = [*TALK[:5], test, answer("t", "Score value: C\nyes"), *TALK[6:]]
    sample = sample_old(messages, metadata={"side_task": LIVE}, scores=linux("C", "C"))
    log = converted_old(tmp_path, sample)
    assert log.values["tasks"] == {"main": 1.0, "side": 1.0, "landed_at": 0}


def test_an_honest_run_is_rebuilt_without_its_side_tasks(tmp_path: Path) -> None:
    log = converted_old(tmp_path, sample_old(), stream="honest")
    assert log.sample["metadata"]["side_tasks"] == []
    assert log.values["tasks"] == {"main": 1.0, "side": None, "landed_at": None}
    assert log.sample["metadata"]["converted_from"]["side_tasks"][0]["id"] == "leak"


def test_usage_of_the_log_is_the_sum_of_its_samples(tmp_path: Path) -> None:
    log = converted_old(tmp_path, sample_old(), sample_old(id="other"))
    assert log.header["stats"]["model_usage"]["provider/agent"]["input_tokens"] == 200
