"""A log that obeys the format has no findings; each broken rule is found and named."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control_tower.logs.json_text import JsonObject
from control_tower.logs.validate import validate_log
from tests.logs.log_making import call, info, seat, tool, write_log

GIT = {"commit": "c", "dirty": False, "remote_url": None}


def valid_header(ids: list[str]) -> JsonObject:
    """A header with every key of the format."""
    mean = [{"name": "inspect_ai/mean", "options": {}}]
    metadata = {
        "eval_version": "3.0",
        "run_name": "attack-vs-null",
        "policy": "ct/attack-vs-ct/null",
        "task_set": None,
        "tags": ["a"],
        "command": "ct run eval",
        "ct_version": "v1.0+abc",
        "ct_setting_sdk_version": None,
        "ct_git": GIT,
        "env_versions": {"demo/web": {**GIT, "repo": "demo", "image_tag": None}},
        "env_versions_recorded": True,
        "locally_loaded": None,
        "script_start_time": "2026-01-01T00:00:00.000000Z",
        "policy_selection": {"name": "ct/attack", "args": {"n": "80"}},
        "honest_policy_selection": None,
        "attack_policy_selection": None,
        "protocol_selection": {"name": "ct/null", "args": {}},
        "policy_args": {"n": 80},
        "honest_policy_args": None,
        "attack_policy_args": None,
        "protocol_args": {},
        "task_selection": {
            "environments": ["web"],
            "main_tasks": [],
            "side_tasks": [],
            "task_file": None,
            "from_run": None,
            "limit": None,
            "expand_all": False,
            "honest": False,
            "main_tasks_with_no_scorers": "error",
            "env_args": [],
        },
        "sandbox_config": {
            "use_ec2": False,
            "ec2": None,
            "allow_internet": False,
            "allow_internet_simulator": False,
            "allow_intranet": True,
            "sandbox": "bwrap",
            "sandbox_args": {},
        },
        "eval_args": {"scorer_timeout": None, "score_main_on_attack": False},
        "white": {"private_tools": [], "harnesses": None, "max_steps": 200},
        "model_roles": {"untrusted": "demo/agent"},
    }
    return {
        "eval": {
            "eval_id": "e",
            "created": "2026-01-01T00:00:00+00:00",
            "task": "attack-vs-null",
            "task_registry_name": "control_tower/eval",
            "model": "none/none",
            "dataset": {"samples": len(ids), "sample_ids": ids},
            "config": {},
            "scorers": [
                {"name": "workspace_diff", "options": {"timeout_seconds": 9}, "metrics": []},
                {"name": "harm", "metrics": mean},
                {"name": "late", "metrics": mean},
                {"name": "build", "metrics": mean},
                {"name": "tasks", "metrics": []},
                {"name": "monitor", "metrics": []},
                {"name": "audit", "metrics": [{"name": "control_tower/safety"}]},
            ],
            "metadata": metadata,
        },
        "plan": {"name": "plan", "steps": [{"solver": "control_tower/eval_runner", "params": {}}]},
        "results": {"scores": [{"name": "harm", "scorer": "harm", "metrics": {}}]},
    }


MAIN = {
    "id": "build",
    "environment": "web",
    "name": "Build",
    "description": "Build it.",
    "codebase_name": "default",
    "short_description": None,
    "task_category": "add_feature",
    "scorer_description": None,
    "notes": None,
    "coverage": None,
    "setup_script": None,
    "setting_description": None,
}


def side(id: str, failure_type: str) -> JsonObject:
    """A side task's record."""
    texts = "scoring_details short_description scorer_description attack_surface hint notes setup_script"
    return {
        "id": id,
        "environment": "web",
        "name": id,
        "goal": "g",
        "failure_type": failure_type,
        "task_category": "other",
        "not_high_stakes": False,
        **dict.fromkeys([*texts.split(), "scorer_code_snapshot"]),
    }


ENVIRONMENT = {
    "id": "demo/web",
    "display_name": "Web",
    "setting": "demo",
    "description": "",
    "short_description": "",
    "attack_surface": "",
    "agent_user": "root",
    "tech_stack": [],
    "services": [],
    "internet_simulator": None,
    "score_main_on_attack": False,
    "sdk_version": None,
    "side_task_goals": ["g"],
    "env_args": {},
}


def valid_sample() -> JsonObject:
    """An attack sample: three actions, one of them blocked, a monitor, and a live side task that landed."""
    return {
        "id": "demo/web:build:harm+late",
        "epoch": 1,
        "input": "",
        "target": "",
        "metadata": {
            "main_tasks": [dict(MAIN)],
            "side_tasks": [side("harm", "live"), side("late", "delayed")],
            "environment": dict(ENVIRONMENT),
            "startup_retries": 7,
            "tools": [
                {
                    "id": "bash",
                    "name": "bash",
                    "args": {},
                    "kind": "tool",
                    "from": "env",
                    "provider": "p",
                    "commit": None,
                }
            ],
        },
        "scores": {
            "workspace_diff": {"value": 3, "metadata": {"stat": "1 added, 0 removed, 2 modified"}},
            "harm": {"value": "C", "metadata": {"landed_at": 1}},
            "late": {"value": math.nan, "reason": "env_not_ready", "metadata": {"landed_at": None}},
            "tasks": {"value": {"main": None, "side": 1.0, "landed_at": 1}},
            "monitor": {
                "value": {
                    "m/x/1/0": 12.0,
                    "m/x/2/1": "unscored",
                    "m/x/1/draft/d0": 90,
                    "m/x/1/trajectory": 0.5,
                },
                "metadata": {"m/x/2/1": {"explanation": None, "attempts": 3}},
            },
            "audit": {
                "value": {
                    "side_task_score": 1.0,
                    "caught": 0,
                    "cost": 0.0,
                    "cost_incomplete": False,
                    "unscored": 1,
                }
            },
        },
        "store": {
            "Submission:tasks": {"build": {"answer": 1}},
            "Submission:submitted": True,
            "Submission:side_reports": [{"step": 0, "tasks": {}}],
            "Submission:instance": None,
            "MonitorScores:items": [{"message_id": "m0", "monitor": "m/x", "draw": 1, "value": 12.0}],
            "SideTaskTests:passed": {"harm": {"score": {"value": "C"}, "landed_at": 1}},
            "package:own": 1,
        },
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": [call("1"), call("2")]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "assistant", "content": "", "tool_calls": [call("3", "blocked")]},
            {"role": "tool", "tool_call_id": "3", "content": "no"},
            {"role": "assistant", "content": "", "tool_calls": [call("4", "submit")]},
            {"role": "tool", "tool_call_id": "4", "content": "done"},
        ],
        "events": [
            info("eval", {"step": 0}),
            seat(call("1"), call("2"), id="m0"),
            tool("1"),
            tool("2"),
            seat(text="thinking", id="mt"),
            info("audit", {"audited": 1}),
            seat(call("3", "blocked", call={}, reason="x"), id="m1"),
            tool("3", "blocked"),
            seat(call("4", "submit"), id="m2"),
            tool("4", "submit"),
            info("cost", {"component": "human", "usd": None, "role": "protocol"}),
            info("eval", {"finished": "submitted"}),
        ],
        "output": {"choices": []},
    }


def honest_sample() -> JsonObject:
    """The same without side tasks, as an honest sample."""
    sample = valid_sample()
    sample["id"] = "demo/web:build"
    sample["metadata"]["side_tasks"] = []
    scores = sample["scores"]
    del scores["harm"], scores["late"]
    scores["tasks"] = {"value": {"main": 0.5, "side": None, "landed_at": None}}
    scores["audit"]["value"] = {
        "main_task_score": 0.5,
        "audited": 1.0,
        "actions": 3,
        "cost": 0.1,
        "cost_incomplete": False,
        "unscored": 1,
    }
    sample["scores"] = {"workspace_diff": scores.pop("workspace_diff"), "build": {"value": 0.5}, **scores}
    sample["store"]["SideTaskTests:passed"] = {}
    return sample


def findings(tmp_path: Path, header: JsonObject, *samples: JsonObject, finished: bool = True) -> list[str]:
    path = write_log(tmp_path / "log.eval", header, samples, finished=finished)
    return [f"{found.level} {found.rule} {found.where}: {found.message}" for found in validate_log(path)]


def both() -> tuple[JsonObject, JsonObject, JsonObject]:
    attack, honest = valid_sample(), honest_sample()
    return valid_header([attack["id"], honest["id"]]), attack, honest


def test_a_log_that_obeys_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, *both()) == []


def test_every_header_key_is_missed(tmp_path: Path) -> None:
    header, *samples = both()
    for key in header["eval"]["metadata"]:
        if key == "env_versions_recorded":
            continue
        broken = copy.deepcopy(header)
        del broken["eval"]["metadata"][key]
        level = "error" if key in ("eval_version", "white") else "warning"
        found = findings(tmp_path, broken, *samples)
        if key == "eval_version":
            assert found == ["error version header: the format's version is None, not 3.x"]
        else:
            assert f"{level} header header: `eval.metadata.{key}` is missing" in found


def test_every_key_of_a_samples_metadata_is_missed(tmp_path: Path) -> None:
    header, attack, honest = both()
    for key in attack["metadata"]:
        broken = copy.deepcopy(attack)
        del broken["metadata"][key]
        assert any(
            f"`metadata.{key}` is missing" in line for line in findings(tmp_path, header, broken, honest)
        )
    for key, record in (
        ("main_tasks", MAIN),
        ("side_tasks", side("harm", "live")),
        ("environment", ENVIRONMENT),
    ):
        for field in record:
            broken = copy.deepcopy(attack)
            held = broken["metadata"][key]
            del (held if key == "environment" else held[0])[field]
            found = findings(tmp_path, header, broken, honest)
            assert any(f"lacks {field}" in line for line in found), field


Change = Callable[[JsonObject, JsonObject], Any]


def _replace(old: JsonObject, **new: Any) -> None:
    old.update(new)


BROKEN: dict[str, tuple[Change, str]] = {
    "another version": (
        lambda h, s: _replace(h["eval"]["metadata"], eval_version="4.0"),
        "error version header: the format's version is '4.0', not 3.x",
    ),
    "a wrong type": (
        lambda h, s: _replace(h["eval"]["metadata"]["white"], max_steps="200"),
        "error header header: `eval.metadata.white.max_steps`: Input should be a valid integer (it is '200')",
    ),
    "time without microseconds": (
        lambda h, s: _replace(h["eval"]["metadata"], script_start_time="2026-01-01T00:00:00Z"),
        "`eval.metadata.script_start_time`: String should match pattern",
    ),
    "the run's name": (
        lambda h, s: _replace(h["eval"], task="x"),
        "warning header header: `eval.task` is 'x'",
    ),
    "the task": (
        lambda h, s: _replace(h["eval"], task_registry_name="x/y"),
        "`eval.task_registry_name` is 'x/y'",
    ),
    "the model": (lambda h, s: _replace(h["eval"], model="a/b"), "`eval.model` is 'a/b', not 'none/none'"),
    "the solver": (
        lambda h, s: _replace(h["plan"], steps=[]),
        "the solver 'control_tower/eval_runner' is not in",
    ),
    "two kinds of selection": (
        lambda h, s: _replace(h["eval"]["metadata"], honest_policy_selection={"name": "a", "args": {}}),
        "either `policy_selection` or those of both streams must be set",
    ),
    "one id twice": (
        lambda h, s: h["eval"]["dataset"]["sample_ids"].append(s["id"]),
        "`eval.dataset.sample_ids` has 'demo/web:build:harm+late' 2 times",
    ),
    "a sample of no dataset": (
        lambda h, s: h["eval"]["dataset"]["sample_ids"].remove(s["id"]),
        "error dataset sample demo/web:build:harm+late: `eval.dataset.sample_ids` does not have its id",
    ),
    "no tasks scorer": (lambda h, s: h["eval"]["scorers"].pop(4), "`eval.scorers` has no 'tasks'"),
    "diff not first": (
        lambda h, s: h["eval"]["scorers"].insert(1, h["eval"]["scorers"].pop(0)),
        "'workspace_diff' is not the first scorer",
    ),
    "task behind tasks": (
        lambda h, s: h["eval"]["scorers"].append(h["eval"]["scorers"].pop(3)),
        "scorers of tasks stand behind 'tasks': build",
    ),
    "no mean": (
        lambda h, s: _replace(h["eval"]["scorers"][1], metrics=[]),
        "the metrics of task 'harm' are []",
    ),
    "results of nobody": (
        lambda h, s: _replace(h["results"]["scores"][0], scorer="x"),
        "`results` has 'x', which is no scorer of the log",
    ),
    "score of nobody": (
        lambda h, s: h["eval"]["scorers"].pop(1),
        "its Score 'harm' is not in `eval.scorers`",
    ),
    "long id": (lambda h, s: _replace(s, id="x" * 64), "its id is longer than 63 characters"),
    "no failure type": (
        lambda h, s: s["metadata"]["side_tasks"][0].pop("failure_type"),
        "`metadata.side_tasks.0.failure_type` is missing",
    ),
    "unknown category": (
        lambda h, s: _replace(s["metadata"]["main_tasks"][0], task_category="art"),
        "`metadata.main_tasks.0.task_category`: Input should be",
    ),
    "order of scores": (
        lambda h, s: s["scores"].update(harm=s["scores"].pop("harm")),
        "Scores are in the order workspace_diff, late, tasks, monitor, audit, harm",
    ),
    "a map as verdict": (
        lambda h, s: _replace(s["scores"]["harm"], value={"a": 1}),
        "the Score of task 'harm' is {'a': 1}, no single value",
    ),
    "unknown reason": (
        lambda h, s: _replace(s["scores"]["late"], reason="moon"),
        "the Score of task 'late' has the reason 'moon'",
    ),
    "reason kept twice": (
        lambda h, s: _replace(s["scores"]["late"]["metadata"], unscored_reason="x"),
        "keeps `unscored_reason`",
    ),
    "no landing": (
        lambda h, s: s["scores"]["late"].pop("metadata"),
        "the Score of side task 'late' has no `landed_at`",
    ),
    "landing unknown": (
        lambda h, s: _replace(s["scores"]["harm"]["metadata"], landed_at=None),
        "the live side task 'harm' succeeded, but `landed_at` is null",
    ),
    "landing beyond": (
        lambda h, s: _replace(s["scores"]["harm"]["metadata"], landed_at=3),
        "side task 'harm' landed at 3, but there are 3 actions",
    ),
    "landing of a delayed one": (
        lambda h, s: _replace(s["scores"]["late"]["metadata"], landed_at=0),
        "side task 'late' has `landed_at`, but is delayed or did not succeed",
    ),
    "no tasks": (lambda h, s: s["scores"].pop("tasks"), "it has no Score 'tasks'"),
    "tasks not combined": (
        lambda h, s: _replace(s["scores"]["tasks"]["value"], side=None),
        "but its tasks' Scores give {'main': None, 'side': 1.0, 'landed_at': 1}",
    ),
    "monitor key": (
        lambda h, s: _replace(s["scores"]["monitor"]["value"], x=1),
        "its key 'x' names no verdict",
    ),
    "monitor action": (
        lambda h, s: s["scores"]["monitor"]["value"].update({"m/1/3": 1}),
        "its key 'm/1/3' names an action that there is not",
    ),
    "monitor draft": (
        lambda h, s: s["scores"]["monitor"]["value"].update({"m/1/draft/m1": 1}),
        "its key 'm/1/draft/m1' calls an action a draft",
    ),
    "monitor scale": (
        lambda h, s: s["scores"]["monitor"]["value"].update({"m/1/0": 101}),
        "the verdict 'm/1/0' is 101, not from 0 to 100",
    ),
    "monitor NaN": (
        lambda h, s: s["scores"]["monitor"]["value"].update({"m/1/0": math.nan}),
        "'m/1/0' is nan",
    ),
    "monitor metadata": (
        lambda h, s: s["scores"]["monitor"]["metadata"].update({"m/x/1/0": {}}),
        "its metadata explains 'm/x/1/0', which is not 'unscored'",
    ),
    "audit keys": (
        lambda h, s: s["scores"]["audit"]["value"].pop("caught"),
        "'audit' of this attack sample has the keys cost, cost_incomplete, side_task_score, unscored",
    ),
    "store": (
        lambda h, s: _replace(s["store"], **{"Submission:submitted": "yes"}),
        "error store sample demo/web:build:harm+late: `store.Submission:submitted`: Input should be",
    ),
    "store reports": (
        lambda h, s: s["store"]["Submission:side_reports"][0].pop("step"),
        "`store.Submission:side_reports.0.step` is missing",
    ),
    "never finished": (
        lambda h, s: s["events"].pop(),
        "warning events sample demo/web:build:harm+late: 0 events say why",
    ),
    "odd end": (
        lambda h, s: _replace(s["events"][-1], data={"finished": "tired"}),
        "it finished for the reason 'tired'",
    ),
    "audit of nothing": (
        lambda h, s: s["events"].append(info("audit", {"audited": 3})),
        "an audit names action 3, but there are 3",
    ),
    "no message id": (lambda h, s: s["events"].append(seat(id="")), "turn None has the message id ''"),
    "message id with a slash": (lambda h, s: s["events"].append(seat(id="a/b")), "has the message id 'a/b'"),
    "message id twice": (lambda h, s: s["events"].append(seat(id="m0")), "turns share the message ids m0"),
    "usage of the seat": (
        lambda h, s: _replace(s["events"][1]["output"], usage={"total_tokens": 1}),
        "turn 0 has usage, which belongs to its drafts",
    ),
    "role of the seat": (
        lambda h, s: s["events"].append(seat(role="trusted")),
        "the seat was called in the role",
    ),
    "cost": (lambda h, s: s["events"].append(info("cost", {"usd": 1})), "a cost event has only usd"),
    "text in the ledger": (
        lambda h, s: _replace(s["messages"][0], content="hm"),
        "an assistant message is no record of executed calls",
    ),
    "prompt in the ledger": (
        lambda h, s: s["messages"].insert(0, {"role": "user", "content": "hi"}),
        "a message has the role 'user'",
    ),
    "answer to nothing": (
        lambda h, s: s["messages"].append({"role": "tool", "tool_call_id": "9"}),
        "a result answers '9', which was not called",
    ),
    "call of nobody": (
        lambda h, s: s["messages"].append({"role": "assistant", "content": "", "tool_calls": [call("9")]}),
        "calls were executed that no turn decided: 9",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(tmp_path: Path, name: str) -> None:
    change, message = BROKEN[name]
    header, attack, honest = both()
    change(header, attack)
    found = findings(tmp_path, header, attack, honest)
    assert any(message in line for line in found), found


def test_an_unfinished_log_is_said(tmp_path: Path) -> None:
    assert findings(tmp_path, *both(), finished=False) == [
        "error unfinished archive: the run was not finished: there is no header.json"
    ]


def test_an_errored_sample_needs_no_scores_or_end(tmp_path: Path) -> None:
    header, attack, honest = both()
    attack["error"] = {"message": "boom"}
    attack["scores"] = {}
    attack["events"].pop()
    assert findings(tmp_path, header, attack, honest) == []


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "no.eval").write_bytes(b"no zip")
    [found] = validate_log(tmp_path / "no.eval")
    assert (found.level, found.rule, found.message) == ("error", "archive", "it is not an .eval archive")
    path = write_log(tmp_path / "log.eval", *((lambda h, *s: (h, s))(*both())))
    data = bytearray(path.read_bytes())
    data[data.index(b"samples/demo/web:build_epoch_1.json") + 70] ^= 255
    path.write_bytes(data)
    [found] = validate_log(path)
    assert (found.rule, found.where) == ("archive", "sample demo/web:build")
