"""Two logs side by side: flips, what only one has, and differences with honest counts of what is missing."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from control_tower.cli.app import cli
from control_tower.logs.json_text import JsonObject
from tests.logs.log_making import info, write_log


def sample(id: str, main: Any = None, side: Any = None, *, epoch: int = 1, **fields: Any) -> JsonObject:
    """A scored sample, an attack when its id has a second colon; `caught` and `usd` set audit and cost."""
    attack = id.count(":") > 1
    scores: JsonObject = {"tasks": {"value": {"main": main, "side": side, "landed_at": None}}}
    if (caught := fields.pop("caught", None)) is not None:
        value = {
            "side_task_score": side,
            "caught": caught,
            "cost": 0,
            "cost_incomplete": False,
            "unscored": 0,
        }
        scores["audit"] = {"value": value}
    usd = fields.pop("usd", 0.5)
    return {
        "id": id,
        "epoch": epoch,
        "metadata": {
            "main_tasks": [{"id": "build"}],
            "side_tasks": [{"id": "leak"}] if attack else [],
            "environment": {"id": "demo/web"},
        },
        "scores": scores,
        "events": [info("cost", {"component": "service", "usd": usd, "role": "protocol"})],
        **fields,
    }


def log(path: Path, *samples: JsonObject, **metadata: Any) -> str:
    """A log of these samples."""
    made: JsonObject = {"eval_version": "3.0", "policy": "ct/attack-vs-ct/null", "model_roles": {}}
    return str(write_log(path, {"eval": {"eval_id": path.stem, "metadata": {**made, **metadata}}}, samples))


def compare(*words: str) -> Result:
    """Runs `ct runs compare`."""
    return CliRunner().invoke(cli, ["runs", "compare", *words])


def compared(*words: str) -> Any:
    """What it says to programs."""
    done = compare(*words, "--format", "json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    """Five attacks and three honest samples in both, of which some have no verdict in one."""
    a = log(
        tmp_path / "a.eval",
        *[sample(f"web:build:{n}", side=1.0, caught=0.0) for n in "abc"],
        sample("web:build:d", side=0.0, caught=0.5),
        sample("web:build:e", side=None),
        sample("web:build", main=0.5),
        sample("web:test", main=1.0),
        sample("web:plan", error={"message": "no"}),
        sample("web:a-only", main=0.0),
        protocol_args={"on_unscored": "error"},
    )
    b = log(
        tmp_path / "b.eval",
        *[sample(f"web:build:{n}", side=0.0, caught=1.0, usd=0.75) for n in "abc"],
        sample("web:build:d", side=1.0, caught=0.5),
        sample("web:build:e", side=1.0),
        sample("web:build", main=1.0),
        sample("web:test", main=None),
        sample("web:plan", main=1.0),
        sample("web:b-only:x", side=1.0),
        policy="ct/attack-vs-ct/defer",
        protocol_args={"audit_threshold": 90.0, "on_unscored": "error"},
        model_roles={"trusted": "demo/judge"},
    )
    return a, b


def test_flips_are_listed_and_tested(logs: tuple[str, str]) -> None:
    side = compared(*logs)["verdicts"]["side"]
    assert [(flip["sample"], flip["a"], flip["b"]) for flip in side["flips"]] == [
        ("web:build:a", 1, 0),
        ("web:build:b", 1, 0),
        ("web:build:c", 1, 0),
        ("web:build:d", 0, 1),
    ]
    # 3 of 4 flips one way: 2 * (C(4,0) + C(4,1)) / 2**4
    assert side["paired"] == {
        "n": 4,
        "a": 0.75,
        "b": 0.25,
        "difference": -0.5,
        "p": 10 / 16,
        "test": "exact McNemar test",
    }


def test_what_has_no_verdict_is_counted_and_never_a_flip(logs: tuple[str, str]) -> None:
    verdicts = compared(*logs)["verdicts"]
    assert verdicts["side"]["unscored"] == {"a": 1, "b": 0}
    assert verdicts["side"]["overall"] == {"a": {"value": 0.75, "n": 4}, "b": {"value": 0.5, "n": 6}}
    assert verdicts["main"]["pairs"] == 3
    assert verdicts["main"]["errored"] == {"a": 1, "b": 0}
    assert verdicts["main"]["unscored"] == {"a": 0, "b": 1}
    assert [flip["sample"] for flip in verdicts["main"]["flips"]] == ["web:build"]
    assert verdicts["main"]["paired"]["test"] == "exact sign-flip permutation test"


def test_what_only_one_has_is_listed(logs: tuple[str, str]) -> None:
    found = compared(*logs)
    assert found["pairs"] == 8
    assert found["only_in_one"] == [
        {"log": "a", "sample": "web:a-only", "epoch": 1},
        {"log": "b", "sample": "web:b-only:x", "epoch": 1},
    ]
    assert found["differs"] == {
        "policy": {"a": "ct/attack-vs-ct/null", "b": "ct/attack-vs-ct/defer"},
        "protocol audit_threshold": {"a": None, "b": 90.0},
        "model trusted": {"a": None, "b": "demo/judge"},
    }


def test_catches_and_costs(logs: tuple[str, str]) -> None:
    found = compared(*logs)
    # The differences are 1, 1, 1 and 0: of 8 choices of signs, 2 reach 3.
    assert found["caught"]["audit"]["difference"] == 0.75
    assert found["caught"]["audit"]["p"] == 2 / 8
    assert found["cost"] == {
        "a": {"usd": 4.0, "incomplete": False},
        "b": {"usd": 4.75, "incomplete": False},
        "difference": 0.75,
    }


def test_a_cost_without_price_leaves_the_difference_unknown(tmp_path: Path) -> None:
    priced = log(tmp_path / "a.eval", sample("web:build", main=1.0))
    unpriced = log(tmp_path / "b.eval", sample("web:build", main=1.0, usd=None))
    assert compared(priced, unpriced)["cost"]["difference"] is None
    assert "A $0.5000, B $0.0000+, difference unknown" in compare(priced, unpriced).stdout


def test_epochs_of_a_sample_are_not_independent(tmp_path: Path) -> None:
    ids = [("web:one:x", epoch) for epoch in (1, 2, 3)] + [("web:two:x", 1)]
    a = log(tmp_path / "a.eval", *[sample(id, side=0.0, epoch=epoch) for id, epoch in ids])
    b = log(tmp_path / "b.eval", *[sample(id, side=1.0, epoch=epoch) for id, epoch in ids])
    paired = compared(a, b)["verdicts"]["side"]["paired"]
    # Two samples with differences 3 and 1: 2 of 4 choices of signs reach 4. Four pairs would give 2 of 16.
    assert (paired["n"], paired["p"]) == (4, 2 / 4)
    assert paired["test"].endswith("epochs of a sample flip together")


def test_invalidated_samples_do_not_count(tmp_path: Path) -> None:
    a = log(tmp_path / "a.eval", sample("web:build", main=1.0, invalidation={"reason": "wrong"}))
    b = log(tmp_path / "b.eval", sample("web:build", main=0.0))
    main = compared(a, b)["verdicts"]["main"]
    assert main["errored"] == {"a": 1, "b": 0}
    assert (main["flips"], main["paired"]["p"]) == ([], None)


def test_the_table_is_for_people(logs: tuple[str, str]) -> None:
    text = " ".join(compare(*logs).stdout.split())
    assert "side verdict 5 0 / 0 1 / 0 4 4 0.750 0.250 -0.500 0.625 exact McNemar test" in text
    assert "side web:build:d 1 0.0 1.0" in text
    assert "B web:b-only:x 1" in text
    assert "main verdict 0.500 of 3 1.000 of 2" in text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("2d1f", "there is none"),
        ("https://viewer.example/1", "is not the URL of a run"),
        ("no.eval", "no such file"),
    ],
)
def test_runs_that_are_no_logs_are_refused_by_name(logs: tuple[str, str], source: str, says: str) -> None:
    done = compare(logs[0], source)
    assert done.exit_code != 0
    assert source in str(done.exception)
    assert says in str(done.exception)


def test_newer_formats_are_refused_by_name(logs: tuple[str, str], tmp_path: Path) -> None:
    new = log(tmp_path / "new.eval", sample("web:build", main=1.0), eval_version="4.0")
    assert new in str(compare(logs[0], new).exception)


def test_a_replay_is_compared_with_what_it_replays(logs: tuple[str, str], tmp_path: Path) -> None:
    origin = {"_replay_eval_sample_id": "web:build", "_replay_epoch": 2}
    recorded = log(tmp_path / "recorded.eval", sample("web:build", main=1.0, epoch=2))
    replayed = log(tmp_path / "replayed.eval", sample("web:build~2", main=0.0, metadata=origin))
    [flip] = compared(recorded, replayed)["verdicts"]["main"]["flips"]
    assert (flip["sample"], flip["epoch"]) == ("web:build", 2)
