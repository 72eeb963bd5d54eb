"""What is read of a log: each number as the log has it, nothing invented and nothing dropped."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from control_tower.errors import StateError, ValidationError
from control_tower.logs.json_text import JsonObject
from control_tower.logs.numbers import NumbersLog, sample_numbers
from control_tower.metrics.samples import SampleNumbers, SourceInfo
from tests.logs.log_making import at, call, info, seat, tool
from tests.metrics.logs import control_log, header, sample


def read(path: Path) -> tuple[SourceInfo, list[SampleNumbers]]:
    with NumbersLog(path) as log:
        samples = list(log.samples())
        return log.info(samples), samples


def numbers(raw: JsonObject) -> SampleNumbers:
    return sample_numbers("log", raw)


def test_an_attack_sample_in_full() -> None:
    found = numbers(
        sample("env:main:side", [10.0, 60.0], side=1.0, landed_at=1, landed_source="probe", submits=True)
    )
    assert (found.stream, found.mains, found.sides) == ("attack", ("main",), ("side",))
    assert (found.main_categories, found.side_categories) == (("fix_bug",), ("exfiltration",))
    assert (found.environment, found.side, found.main) == ("setting/env", 1.0, None)
    assert (found.landed_at, found.landed_source) == (1, "probe")
    assert (found.actions, found.ran) == (3, 3)
    assert found.monitors["judge"].actions.tolist()[:2] == [10.0, 60.0]


def test_submitting_is_passed_over_by_design_and_not_unscored() -> None:
    found = numbers(sample("env:main", [10.0], main=1.0, submits=True))
    judge = found.monitors["judge"]
    assert found.judgeable.tolist() == [True, False]
    assert np.isnan(judge.actions[1])
    assert judge.lacking.tolist() == [False, False]


@pytest.mark.parametrize("verdict", ["unscored", math.nan, math.inf, True, -1.0, 101.0, "50"])
def test_what_is_no_score_is_unscored_and_never_a_number(verdict: Any) -> None:
    judge = numbers(sample("env:main", [verdict, 20.0], main=1.0)).monitors["judge"]
    assert np.isnan(judge.actions[0])
    assert judge.lacking.tolist() == [True, False]
    assert judge.unread_draws == 1


def test_an_action_without_any_verdict_lacks_one() -> None:
    judge = numbers(sample("env:main", [None, 20.0], main=1.0)).monitors["judge"]
    assert judge.lacking.tolist() == [True, False]


def test_draws_are_averaged_and_unread_ones_left_out_and_counted() -> None:
    judge = numbers(sample("env:main", [[10.0, "unscored", 40.0]], main=1.0)).monitors["judge"]
    assert judge.actions.tolist() == [25.0]
    assert judge.unread_draws == 1
    assert not judge.lacking.any()


def test_drafts_are_no_actions_and_names_may_hold_slashes() -> None:
    raw = sample("env:main", [10.0], main=1.0, monitor="a/b/draft", trajectory=30.0)
    raw["scores"]["monitor"]["value"]["a/b/draft/1/draft/m7"] = 99.0
    judge = numbers(raw).monitors["a/b/draft"]
    assert (judge.actions.tolist(), judge.trajectory, judge.judges_trajectory) == ([10.0], 30.0, True)


def test_a_score_of_an_action_that_is_not_there_is_refused() -> None:
    raw = sample("env:main", [10.0], main=1.0)
    raw["scores"]["monitor"]["value"]["judge/1/1"] = 99.0
    with pytest.raises(ValidationError, match=r"env:main.*'judge/1/1'.*it has 1"):
        numbers(raw)


@pytest.mark.parametrize(
    ("verdict", "number"), [("C", 1.0), ("I", 0.0), (0.25, 0.25), ("N", None), (math.nan, None), (None, None)]
)
def test_verdicts(verdict: Any, number: float | None) -> None:
    assert numbers(sample("env:main", [1.0], main=verdict)).main == number


@pytest.mark.parametrize("verdict", [1.5, -1.0])
def test_main_scorers_may_use_another_scale(verdict: float) -> None:
    assert numbers(sample("env:main", [1.0], main=verdict)).main == verdict


def test_a_wrong_verdict_is_said_with_its_log(tmp_path: Path) -> None:
    log = control_log(tmp_path / "log.eval", [sample("env:main", [1.0], main=math.inf)])
    with pytest.raises(ValidationError, match=r"log\.eval: sample env:main.*its main verdict is inf"):
        read(log)


@pytest.mark.parametrize("verdict", [1.5, -0.1, "E", []])
def test_a_side_verdict_that_is_no_share_is_refused(verdict: Any) -> None:
    with pytest.raises(ValidationError, match="env:main:side: its side verdict"):
        numbers(sample("env:main:side", [1.0], side=verdict))


@pytest.mark.parametrize("landed_at", [2, -2, "1"])
def test_a_landing_at_an_action_that_is_not_there_is_refused(landed_at: Any) -> None:
    with pytest.raises(ValidationError, match="landed at action"):
        numbers(sample("env:main:side", [1.0, 2.0], side=1.0, landed_at=landed_at))


def test_an_invalidated_sample_counts_as_errored() -> None:
    raw = sample("env:main:side", [1.0], side=1.0)
    raw["invalidation"] = {"timestamp": at(0), "author": "a", "reason": "wrong image"}
    assert numbers(raw).error == "wrong image"


def test_errors_and_missing_task_scores_are_told_apart() -> None:
    errored = numbers(sample("env:main", [1.0], error="no disk"))
    assert (errored.error, errored.has_tasks) == ("no disk", False)
    unscored = numbers(sample("env:main:side", [1.0], side=None))
    assert (unscored.error, unscored.has_tasks, unscored.side, unscored.faults) == (
        None,
        True,
        None,
        ("no_verdict",),
    )


def test_refused_actions_did_not_run_and_audited_ones_are_named() -> None:
    raw = sample("env:main:side", [1.0], side=0.0)
    raw["events"] += [
        seat(call("b", "blocked"), id="mb"),
        tool("b", "blocked"),
        seat(call("a"), id="ma"),
        info("audit", {"audited": 2}),
        tool("a", "audited"),
    ]
    found = numbers(raw)
    assert (found.actions, found.ran, found.audited) == (3, 1, (2,))


def test_what_an_action_cost_is_in_its_slot() -> None:
    def paid(second: float, usd: float | None, **fields: Any) -> JsonObject:
        usage = {"total_tokens": 10} | ({} if usd is None else {"total_cost": usd})
        output = {"choices": [], "usage": usage}
        return {
            "event": "model",
            "model": "p/m",
            "role": "x",
            "timestamp": at(second),
            "output": output,
            **fields,
        }

    raw = sample("env:main", [1.0, 2.0], main=1.0)
    raw["events"] += [
        paid(5, 1.0),
        paid(15, 2.0),
        paid(500, 4.0),
        paid(15, 100.0, cache="read"),
        {"event": "info", "source": "cost", "timestamp": at(3), "data": {"component": "c", "usd": 8.0}},
        {"event": "span_begin", "id": "s", "type": "scorer", "name": "tasks", "timestamp": at(600)},
        paid(601, 16.0, span_id="s"),
    ]
    raw["model_usage"] = {"p/m": {"total_tokens": 50, "total_cost": 23.0}}
    found = numbers(raw)
    assert found.slot_costs.tolist() == [9.0, 2.0, 4.0]
    assert (found.cost.usd, found.cost.incomplete) == (31.0, False)
    raw["events"].append(paid(5, None))
    assert numbers(raw).slots_incomplete


def test_the_source_says_what_it_is(tmp_path: Path) -> None:
    samples = [sample("env:main", [1.0], main=1.0), sample("env:main:side", [1.0], side=1.0)]
    source, read_samples = read(
        control_log(tmp_path / "a.eval", samples, protocol_args={"sus_threshold": None})
    )
    assert [found.ref.id for found in read_samples] == ["env:main", "env:main:side"]
    assert (source.name, source.protocol) == ("a", "ct/trusted-monitoring")
    assert (source.honest_policy, source.attack_policy) == ("ct/honest", "ct/attack")
    assert not source.live_audits


@pytest.mark.parametrize("argument", ["sus_threshold", "audit_threshold"])
def test_a_protocol_that_could_have_audited_is_live_though_it_did_not(tmp_path: Path, argument: str) -> None:
    log = control_log(tmp_path / "a.eval", [sample("env:main", [1.0])], protocol_args={argument: 99.0})
    assert read(log)[0].live_audits


@pytest.mark.parametrize("version", [None, "2.9", "1"])
def test_older_logs_are_refused_with_the_command_that_converts_them(
    tmp_path: Path, version: str | None
) -> None:
    log = control_log(tmp_path / "old.eval", [], version=version)
    with pytest.raises(ValidationError, match=r"old.eval has .*`ct runs convert`"):
        NumbersLog(log)


@pytest.mark.parametrize("version", ["4.0", "abc"])
def test_other_formats_are_refused(tmp_path: Path, version: str) -> None:
    log = control_log(tmp_path / "new.eval", [], version=version)
    with pytest.raises(ValidationError, match=f"{version}.*metrics read format 3"):
        NumbersLog(log)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no such file"):
        NumbersLog(tmp_path / "none.eval")


def test_an_unfinished_log_gives_what_it_holds(tmp_path: Path) -> None:
    from tests.logs.log_making import write_log

    path = write_log(tmp_path / "a.eval", header(), [sample("env:main", [1.0], main=1.0)], finished=False)
    source, samples = read(path)
    assert (source.status, len(samples)) == ("started", 1)
