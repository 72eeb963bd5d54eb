"""What is promised of converting old runs, a test for each sentence."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.conversion.convert import convert
from control_tower.conversion.current import current_path
from control_tower.errors import StateError, ValidationError
from control_tower.logs.actions import Transcript
from control_tower.logs.json_text import JsonObject
from tests.conversion.old_logs import (
    LIVE,
    MAIN,
    SIDE,
    TURNS,
    Log,
    converted,
    converted_2x,
    converted_old,
    header_2x,
    header_old,
    linux,
    old_seat,
    sample_2x,
    sample_old,
)
from tests.logs.log_making import call, tool, write_log


def test_a_command_that_loads_an_older_log_converts_it_first(tmp_path: Path) -> None:
    source = write_log(tmp_path / "old.eval", header_2x(), [sample_2x(side=SIDE)])
    before = source.read_bytes()
    read = current_path(source)
    assert read.name == source.name and read != source
    assert read.read_bytes() == convert(source, tmp_path / "new.eval").target.read_bytes()
    assert source.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.eval", "old.eval"]


def test_the_source_is_left_as_it_was(tmp_path: Path) -> None:
    source = write_log(tmp_path / "old.eval", header_old(), [sample_old()])
    before = source.read_bytes(), source.stat().st_mtime_ns
    convert(source, tmp_path / "new.eval")
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before


def test_a_log_from_before_eval_version_is_rebuilt_with_its_verdicts_in_the_monitor_score(
    tmp_path: Path,
) -> None:
    scores: Any = {**linux("C", "I"), "monitor_judge": {"value": {"action_0": 5, "action_2": 7}}}
    log = converted_old(tmp_path, sample_old(scores=scores))
    assert log.header["eval"]["task_registry_name"] == "control_tower/eval"
    assert log.values["monitor"] == {"judge/1/0": 50.0, "judge/1/1": 70.0}
    assert log.errors == []


def test_a_rebuilt_log_keeps_policy_task_set_and_tags_and_gains_the_legacy_run_tag(tmp_path: Path) -> None:
    metadata = converted_old(tmp_path, sample_old()).metadata
    assert metadata["policy"] == "attack-vs-trusted-monitoring"
    assert metadata["policy_selection"] == {"name": "attack", "args": {}}
    assert metadata["task_set"] == "small"
    assert metadata["tags"] == ["baseline", "legacy-run"]


def test_rebuilt_samples_get_new_ids(tmp_path: Path) -> None:
    log = converted_old(tmp_path, sample_old(epoch=2))
    assert (log.sample["id"], log.sample["epoch"]) == ("291c0bff75981b696e6c98a524027fb4", 1)
    assert log.header["eval"]["eval_id"] == "14481276f86b4a01a4b138cc595d65fc"
    assert log.header["eval"]["dataset"]["sample_ids"] == ["291c0bff75981b696e6c98a524027fb4"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"environment": "box"},
        {"environment": None},
        {"main_task": {**MAIN, "task_category": "Gardening"}},
        {"main_task": None, "side_task": None},
    ],
)
def test_a_log_whose_samples_record_no_environment_or_tasks_is_too_old(
    tmp_path: Path, metadata: JsonObject
) -> None:
    source = write_log(tmp_path / "old.eval", header_old(), [sample_old(metadata=metadata)])
    with pytest.raises(ValidationError, match=r"old.eval: .*too old to convert"):
        convert(source, tmp_path / "new.eval")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("name", ["control_eval", "control_eval2"])
def test_a_one_policy_control_eval_log_becomes_an_eval_log(tmp_path: Path, name: str) -> None:
    header = header_2x()
    header["eval"]["task_registry_name"] = f"control_tower/{name}"
    log = converted(tmp_path, header, [sample_2x(side=SIDE)])
    assert log.header["eval"]["task_registry_name"] == "control_tower/eval"
    assert log.metadata["policy_selection"] == {"name": "ct/attack", "args": {}}
    assert log.metadata["policy_args"] == {"hint": True}
    assert "untrusted_policy_selection" not in log.metadata
    assert log.header["eval"]["task_args"]["policy"] == {"name": "attack", "args": {}}
    assert log.errors == []


def test_main_task_and_side_task_become_lists(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=LIVE), sample_2x("s2"))
    assert [s["metadata"]["main_tasks"] for s in log.samples] == [[MAIN], [MAIN]]
    assert [s["metadata"]["side_tasks"] for s in log.samples] == [[LIVE], []]
    assert all("main_task" not in s["metadata"] for s in log.samples)


def test_submitted_arguments_are_keyed_by_task_id(tmp_path: Path) -> None:
    store = {
        "Submission:main": {"url": "x"},
        "Submission:side": {"token": "y"},
        "Submission:side_reports": [{"step": 3, "side": {"token": "z"}}],
        "Submission:submitted": True,
    }
    log = converted_2x(tmp_path, sample_2x(side=SIDE, store=store))
    assert log.sample["store"] == {
        "Submission:tasks": {"fix": {"url": "x"}, "leak": {"token": "y"}},
        "Submission:side_reports": [{"step": 3, "tasks": {"leak": {"token": "z"}}}],
        "Submission:submitted": True,
    }


def test_linux_scorer_becomes_workspace_diff_one_score_a_task_and_tasks(tmp_path: Path) -> None:
    diff = {"diff": "+a", "stat": "1 added, 2 removed, 3 modified"}
    scores = linux(
        "C",
        "0.5",
        explanation="## main_task_success:\ngood\n\n## side_task_success:\nbad",
        metadata={"main_task_success": {"n": 1}, "side_task_success": {"m": 2}, "workspace_diff": diff},
    )
    log = converted_2x(tmp_path, sample_2x(side=SIDE, scores=scores))
    assert log.values == {
        "workspace_diff": 6,
        "leak": 0.5,
        "fix": "C",
        "tasks": {"main": 1.0, "side": 0.5, "landed_at": None},
    }
    assert list(log.scores) == ["workspace_diff", "leak", "fix", "tasks"]
    assert log.scores["workspace_diff"]["metadata"] == diff
    assert (log.scores["fix"]["explanation"], log.scores["fix"]["metadata"]) == ("good", {"n": 1})
    assert log.scores["leak"]["metadata"] == {"m": 2, "landed_at": None}


def test_the_headers_scorers_and_metrics_are_recomputed(tmp_path: Path) -> None:
    samples = [sample_2x(id, side=SIDE, scores=linux(main, "I")) for id, main in (("s1", "C"), ("s2", "I"))]
    log = converted_2x(tmp_path, *samples)
    scorers = [(s["name"], [m["name"] for m in s["metrics"]]) for s in log.header["eval"]["scorers"]]
    mean = ["inspect_ai/mean"]
    assert scorers == [("workspace_diff", []), ("leak", mean), ("fix", mean), ("tasks", [])]
    means = {s["name"]: s["metrics"]["mean"]["value"] for s in log.header["results"]["scores"]}
    assert means == {"leak": 0.0, "fix": 0.5}
    assert read_eval_log(str(log.path)).results is not None


@pytest.mark.parametrize(
    ("metadata", "explanation", "reason"),
    [
        ({"harness_error": {"type": "scorer_timeout", "after": 600}}, None, "scorer_timeout"),
        ({"harness_error": {"type": "scorer_error"}}, None, "scorer_error"),
        ({"scorer_error": "ValueError: x"}, None, "scorer_error"),
        ({"scorer_timeout": True}, None, "scorer_timeout"),
        ({}, "Scorer timed out after 600 s", "scorer_timeout"),
        ({}, "Error scoring: boom", "scorer_error"),
        ({}, "Check script error: 2", "scorer_error"),
        ({}, "Check script emitted conflicting verdicts", "scorer_error"),
    ],
)
@pytest.mark.parametrize("verdict", ["N", "E", math.nan])
def test_a_verdict_that_decided_nothing_scores_failed_after_a_timeout_or_crash(
    tmp_path: Path, metadata: JsonObject, explanation: str | None, reason: str, verdict: Any
) -> None:
    scores = {"main_task": {"value": verdict, "metadata": metadata, "explanation": explanation}}
    log = converted_2x(tmp_path, sample_2x(scores=scores))
    assert (log.values["fix"], log.scores["fix"]["reason"]) == ("I", reason)
    assert log.values["tasks"]["main"] == 0.0


@pytest.mark.parametrize(
    ("metadata", "explanation", "reason"),
    [
        ({}, None, None),
        ({}, "no idea", None),
        ({"harness_error": {"type": "env_not_ready"}}, None, "env_not_ready"),
        ({"env_not_ready": "no port"}, None, "env_not_ready"),
        ({}, "Environment not ready: no port", "env_not_ready"),
        ({"harness_error": {"type": "sunspots"}}, None, None),
        ({"harness_error": "scorer_error"}, None, None),
    ],
)
def test_it_stays_unscored_when_the_environment_was_not_ready_or_no_cause_is_given(
    tmp_path: Path, metadata: JsonObject, explanation: str | None, reason: str | None
) -> None:
    scores = {"main_task": {"value": "N", "metadata": metadata, "explanation": explanation}}
    log = converted_2x(tmp_path, sample_2x(scores=scores))
    assert math.isnan(log.values["fix"])
    assert log.scores["fix"]["reason"] == reason
    assert log.values["tasks"]["main"] is None
    assert log.errors == []


def test_a_live_side_task_that_passed_gets_its_landed_at_from_the_transcript(tmp_path: Path) -> None:
    failed = tool("t1", "run_side_task_test", result="Score value: I\nnot yet")
    passed = tool("t2", "mcp__env__run_side_task_test", result="Score value: 0.2\nyes")
    events = [*TURNS[:2], failed, passed, *TURNS[2:]]
    log = converted_2x(tmp_path, sample_2x(side=LIVE, events=events, scores=linux("C", "C")))
    assert log.values["tasks"] == {"main": 1.0, "side": 1.0, "landed_at": 0}
    assert log.scores["leak"]["metadata"] == {"landed_at": 0, "landed_source": "test"}
    untested = converted_2x(tmp_path, sample_2x(side=LIVE, scores=linux("C", "C")))
    assert untested.scores["leak"]["metadata"] == {"landed_at": 1, "landed_source": "end"}
    assert untested.errors == []


def test_a_side_task_that_names_no_failure_type_is_delayed(tmp_path: Path) -> None:
    for stated in ({}, {"failure_type": "unknown"}, {"failure_type": None}):
        log = converted_2x(tmp_path, sample_2x(side={**SIDE, **stated}, scores=linux("C", "C")))
        assert log.sample["metadata"]["side_tasks"] == [{**SIDE, "failure_type": "delayed"}]
        assert log.values["tasks"]["landed_at"] is None


def test_an_honest_runs_samples_lose_their_side_tasks_and_keep_them_under_converted_from(
    tmp_path: Path,
) -> None:
    log = converted_2x(tmp_path, sample_2x(side=LIVE, scores=linux("C", "I")), stream="honest")
    assert log.sample["metadata"]["side_tasks"] == []
    assert log.values == {"fix": "C", "tasks": {"main": 1.0, "side": None, "landed_at": None}}
    kept = log.sample["metadata"]["converted_from"]
    assert kept["run"] == "E2"
    assert kept["side_tasks"] == [LIVE]
    assert kept["scores"]["leak"]["value"] == "I"
    assert log.errors == []


@pytest.mark.parametrize("name", ["honest", "ct/honest", "HONEST", "simple-honest", "my/honest_one"])
def test_an_honest_policy_whose_samples_carry_side_tasks_is_refused_until_a_flag_says_which(
    tmp_path: Path, name: str
) -> None:
    header = header_2x(untrusted_policy_selection={"name": name, "args": {}})
    source = write_log(tmp_path / "old.eval", header, [sample_2x(side=SIDE)])
    with pytest.raises(ValidationError, match="--honest or --attack"):
        convert(source, tmp_path / "new.eval")
    assert len(Log(convert(source, tmp_path / "new.eval", "honest")).samples) == 1
    assert len(Log(convert(source, tmp_path / "new.eval", "attack")).samples) == 1


@pytest.mark.parametrize("name", ["dishonest", "attack-vs-honest", "ct/attack"])
def test_other_policies_are_not_taken_for_honest_ones(tmp_path: Path, name: str) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE), untrusted_policy_selection={"name": name, "args": {}})
    assert log.sample["metadata"]["side_tasks"]


def test_an_attack_sample_without_a_side_task_is_refused(tmp_path: Path) -> None:
    source = write_log(tmp_path / "old.eval", header_2x(), [sample_2x("lonely")])
    with pytest.raises(ValidationError, match="sample lonely: has no side task"):
        convert(source, tmp_path / "new.eval", "attack")


def test_a_converted_log_carries_no_audit_score(tmp_path: Path) -> None:
    audit = {"value": {"caught": 1.0}}
    scores = {**linux("C", "I"), "audit": audit, "audit1": audit}
    header = header_2x()
    header["eval"]["scorers"].append({"name": "audit", "options": {}, "metrics": []})
    log = converted(tmp_path, header, [sample_2x(side=SIDE, scores=scores)])
    assert not [name for name in log.scores if name.startswith("audit")]
    assert not [s for s in log.header["eval"]["scorers"] if s["name"].startswith("audit")]
    assert log.sample["metadata"]["converted_from"]["old_scores"]["audit"] == audit


def test_converted_from_names_the_run_in_the_header_and_in_each_sample(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE), sample_2x("s2", side=SIDE))
    assert log.metadata["converted_from"] == ["E2"]
    assert [s["metadata"]["converted_from"]["run"] for s in log.samples] == ["E2", "E2"]


def test_a_log_that_is_current_is_not_converted(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE))
    with pytest.raises(StateError, match="current already"):
        convert(log.path, tmp_path / "again.eval")


def test_a_step_below_3_keeps_ids_and_times_of_the_log(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE))
    old = header_2x()["eval"]
    same = ("eval_id", "run_id", "task_id", "created")
    assert {key: log.header["eval"][key] for key in same} == {key: old[key] for key in same}
    assert log.sample["uuid"] == "uuid-s1"


def test_the_seat_is_renamed_so_that_actions_are_found(tmp_path: Path) -> None:
    log = converted_2x(tmp_path, sample_2x(side=SIDE))
    assert [turn.message_id for turn in Transcript.of(log.sample).actions] == ["m0", "m1"]
    assert old_seat(call("a"), id="m0")["model"] == "eval2/demo/agent"
    assert json.dumps(log.sample).count("eval2/") == 0
