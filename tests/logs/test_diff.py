"""`ct logs diff`: what differs between two logs, and nothing else."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.logs.diff import Comparison, Difference, diff_logs
from control_tower.logs.json_text import JsonObject
from control_tower.logs.zip_reader import DamagedArchive
from tests.logs.log_making import at, call, seat, tool, write_log
from tests.logs.small_evals import run_eval
from tests.logs.test_logs_command import ct

HEADER: JsonObject = {"eval": {"eval_id": "e", "created": at(0), "task": "t", "metadata": {"tags": ["x"]}}}

SAMPLE: JsonObject = {
    "id": "s",
    "epoch": 1,
    "metadata": {"main_tasks": [{"id": "build"}]},
    "messages": [
        {"id": "m1", "role": "assistant", "tool_calls": [call("c1")]},
        {"id": "m2", "role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "scores": {"build": {"value": math.nan}, "tasks": {"value": {"main": None, "side": None}}},
    "events": [seat(call("c1"), id="m1"), tool("c1", began=1)],
}


Change = Callable[[JsonObject, JsonObject], Any]


def differences(
    tmp_path: Path, change: Change = lambda header, sample: None, *ignore: Any
) -> list[tuple[str, str, Any, Any]]:
    """Those of two logs, of which the second was changed: where, path, a and b."""
    header, sample = copy.deepcopy(HEADER), copy.deepcopy(SAMPLE)
    change(header, sample)
    a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE])
    b = write_log(tmp_path / "b.eval", header, [sample])
    return [(d.where, d.path, d.a, d.b) for d in diff_logs(a, b, ignore)]


def test_equal_logs_do_not_differ_though_their_bytes_do(tmp_path: Path) -> None:
    assert differences(tmp_path) == []

    def reorder(header: JsonObject, sample: JsonObject) -> None:
        scores = sample.pop("scores")
        sample["scores"] = dict(reversed(scores.items()))

    assert differences(tmp_path, reorder) == []


def test_each_field_of_the_header(tmp_path: Path) -> None:
    def change(header: JsonObject, sample: JsonObject) -> None:
        header["eval"]["metadata"] = {"tags": ["x", "y"], "note": None}
        header["eval"]["task"] = "other"
        header["status"] = "error"

    assert sorted(differences(tmp_path, change)) == [
        ("header", "eval.metadata.note", None, None),
        ("header", "eval.metadata.tags[1]", None, "y"),
        ("header", "eval.task", "t", "other"),
        ("header", "status", "success", "error"),
    ]


def test_scores_one_by_one_and_other_parts_by_their_first_difference(tmp_path: Path) -> None:
    def change(header: JsonObject, sample: JsonObject) -> None:
        sample["scores"]["build"]["value"] = 1
        sample["scores"]["tasks"]["value"] = {"main": 1.0, "side": False}
        sample["messages"][1]["content"] = "failed"
        sample["messages"].append({"id": "m3"})
        sample["events"][1]["result"] = "other"
        sample["events"][1]["function"] = "python"

    found = differences(tmp_path, change)
    assert math.isnan(found[2][2])
    assert [(path, b) for _, path, _, b in found] == [
        ("len(messages)", 3),
        ("messages[1].content", "failed"),
        ("scores.build.value", 1),
        ("scores.tasks.value.main", 1.0),
        ("scores.tasks.value.side", False),
        ("events[1].function", "python"),
    ]
    assert {where for where, *_ in found} == {"sample s"}


def test_samples_that_only_one_has(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE, {**SAMPLE, "epoch": 2}])
    b = write_log(tmp_path / "b.eval", HEADER, [{**SAMPLE, "id": "t"}, SAMPLE])
    assert [(d.where, d.path, d.only_in) for d in diff_logs(a, b)] == [
        ("sample s (epoch 2)", "", "a"),
        ("sample t", "", "b"),
    ]


class TestIgnoring:
    @staticmethod
    def rename(header: JsonObject, sample: JsonObject) -> None:
        """Other ids everywhere, consistently."""
        header["eval"]["eval_id"] = "f"
        text = json.dumps(sample).replace('"m1"', '"n1"').replace('"m2"', '"n2"').replace('"c1"', '"k1"')
        sample.update(json.loads(text))

    def test_ids_that_stand_for_each_other(self, tmp_path: Path) -> None:
        paths = [path for _, path, *_ in differences(tmp_path, self.rename)]
        assert paths == ["eval.eval_id", "messages[0].id", "events[0].output.choices[0].message.id"]
        assert differences(tmp_path, self.rename, "ids") == []

    def test_but_not_ids_that_point_elsewhere(self, tmp_path: Path) -> None:
        def change(header: JsonObject, sample: JsonObject) -> None:
            self.rename(header, sample)
            sample["messages"][1]["tool_call_id"] = "another"

        assert differences(tmp_path, change, "ids") == [
            ("sample s", "messages[1].tool_call_id", "c1", "another")
        ]

    def test_nor_the_ids_of_tasks(self, tmp_path: Path) -> None:
        def change(header: JsonObject, sample: JsonObject) -> None:
            sample["metadata"]["main_tasks"][0]["id"] = "rebuild"

        assert differences(tmp_path, change, "ids") == [
            ("sample s", "metadata.main_tasks[0].id", "build", "rebuild")
        ]

    def test_times(self, tmp_path: Path) -> None:
        def change(header: JsonObject, sample: JsonObject) -> None:
            header["eval"]["created"] = at(5)
            sample["events"][1]["timestamp"] = at(6)
            sample["total_time"] = 3.5

        assert len(differences(tmp_path, change)) == 3
        assert differences(tmp_path, change, "times") == []

    def test_two_runs_of_one_eval_differ_in_ids_and_times_only(self, tmp_path: Path) -> None:
        logs = [Path(run_eval(tmp_path / name, ["s1", "s2"]).location) for name in "ab"]
        assert list(diff_logs(*logs))
        assert list(diff_logs(*logs, ignore=("ids", "times"))) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert list(Comparison().differences(value, copy.deepcopy(value))) == []


@given(json_values, json_values)
def test_differences_are_the_same_from_both_sides(a: Any, b: Any) -> None:
    def places(found: list[Difference]) -> list[str]:
        return sorted(each.path for each in found)

    assert places(list(Comparison().differences(a, b))) == places(list(Comparison().differences(b, a)))


class TestCommand:
    def test_it_ends_with_1_when_logs_differ(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE])
        b = write_log(tmp_path / "b.eval", {"eval": {**HEADER["eval"], "task": "u"}}, [SAMPLE])
        assert ct("diff", str(a), str(b), "--format", "json") == 1
        printed = capsys.readouterr()
        assert json.loads(printed.out) == [
            {"where": "header", "path": "eval.task", "only_in": None, "a": "t", "b": "u"}
        ]
        assert printed.err == "1 differences\n"

    def test_people_see_values_cut_and_nulls_apart_from_what_is_absent(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE])
        spec = {**HEADER["eval"], "task": None, "new": "\ud800" + "y" * 200}
        b = write_log(tmp_path / "b.eval", {"eval": spec}, [SAMPLE])
        assert ct("diff", str(a), str(b)) == 1
        assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
            "where path only in a b",
            'header eval.task "t" null',
            f'header eval.new b "\\ud800{"y" * 70}...',
        ]
        assert ct("diff", str(a), str(b), "--format", "jsonl") == 1
        assert [json.loads(line)["path"] for line in capsys.readouterr().out.splitlines()] == [
            "eval.task",
            "eval.new",
        ]

    def test_it_ends_with_0_when_they_do_not(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE])
        assert ct("diff", str(a), str(a)) == 0
        assert capsys.readouterr().out == ""

    def test_a_damaged_log_is_named(self, tmp_path: Path) -> None:
        a = write_log(tmp_path / "a.eval", HEADER, [SAMPLE])
        b = tmp_path / "b.eval"
        b.write_bytes(a.read_bytes()[:-10])
        with pytest.raises(DamagedArchive, match=r"b\.eval"):
            list(diff_logs(a, b))
