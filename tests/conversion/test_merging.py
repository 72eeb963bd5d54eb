"""An honest and an attack run as one control-eval log."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.logs.archive import EvalArchive
from control_tower.logs.json_text import JsonObject
from control_tower.logs.validate import validate_log
from tests.conversion.conftest import Convert
from tests.conversion.old_logs import SIDE, header_2x, header_old, linux, sample_2x, sample_old
from tests.logs.log_making import write_log

TRUSTED = "ct/trusted-monitoring"


def honest_log(path: Path, *ids: str, samples: list[JsonObject] | None = None, **metadata: Any) -> str:
    """A 2.x log of the honest policy; its samples carry side tasks all the same."""
    made = samples or [sample_2x(id, side=SIDE, scores=linux("C", "I")) for id in ids]
    stated: JsonObject = {
        "eval_id": "Ehonest",
        "untrusted_policy_selection": {"name": "ct/honest", "args": {}},
    }
    return str(write_log(path, header_2x([s["id"] for s in made], **{**stated, **metadata}), made))


def attack_log(path: Path, *ids: str, **metadata: Any) -> str:
    made = [sample_2x(id, side=SIDE, scores=linux("C", "C")) for id in ids]
    return str(write_log(path, header_2x(list(ids), **{"eval_id": "Eattack", **metadata}), made))


def test_two_runs_become_one_log_of_both_streams_and_both_policies(tmp_path: Path, convert: Convert) -> None:
    honest = honest_log(tmp_path / "h.eval", "h1", "h2", tags=["a", "b"])
    attack = attack_log(tmp_path / "a.eval", "a1", tags=["b", "c"])
    code, (line,), _ = convert("--honest", honest, "--attack", attack)
    assert (code, line["converted_from"], line["run_id"]) == (0, ["Ehonest", "Eattack"], None)
    with EvalArchive.open(line["eval"]) as archive:
        header = archive.header()
        samples = [archive.sample(key) for key in archive.sample_keys()]
    metadata = header["eval"]["metadata"]
    assert header["eval"]["eval_id"] == "4ec04aa28e3b415d2fa714695dd49fcd"
    assert header["eval"]["task_registry_name"] == "control_tower/control_eval"
    assert metadata["policy"] == "ct/honest+ct/attack-vs-ct/trusted-monitoring"
    assert metadata["run_name"] == header["eval"]["task"] == f"{metadata['policy']}-small"
    assert metadata["tags"] == ["a", "b", "c"]
    assert metadata["policy_selection"] is None
    assert metadata["honest_policy_selection"]["name"] == "ct/honest"
    assert metadata["attack_policy_selection"]["name"] == "ct/attack"
    assert metadata["protocol_selection"]["args"] == {"sus_threshold": 80.0}
    assert metadata["converted_from"] == ["Ehonest", "Eattack"]
    assert [(s["id"], len(s["metadata"]["side_tasks"])) for s in samples] == [("h1", 0), ("h2", 0), ("a1", 1)]
    assert [s["metadata"]["converted_from"]["run"] for s in samples] == ["Ehonest", "Ehonest", "Eattack"]
    assert header["eval"]["dataset"]["sample_ids"] == ["h1", "h2", "a1"]
    assert [s["name"] for s in header["eval"]["scorers"]] == ["workspace_diff", "leak", "fix", "tasks"]
    means = {s["name"]: s["metrics"]["mean"]["value"] for s in header["results"]["scores"]}
    assert means == {"leak": 1.0, "fix": 1.0}
    assert [f.message for f in validate_log(Path(line["eval"])) if f.level == "error"] == []
    assert len(read_eval_log(line["eval"]).samples or []) == 3


def test_only_what_both_runs_agree_on_is_kept(tmp_path: Path, convert: Convert) -> None:
    versions = {"repo": None, "commit": "c", "dirty": False, "remote_url": None, "image_tag": "t"}
    honest = honest_log(
        tmp_path / "h.eval",
        "h1",
        command="ct run x",
        ct_version="v1",
        extra=1,
        env_versions={"box": versions},
        task_selection={"limit": 3, "honest": True, "task_file": "h.yaml"},
        eval_args={"scorer_timeout": 5, "score_main_on_attack": False},
        model_roles={"untrusted": "u", "trusted": "t"},
    )
    attack = attack_log(
        tmp_path / "a.eval",
        "a1",
        command="ct run y",
        ct_version="v1",
        extra=1,
        env_versions={"box": {**versions, "image_digest": "sha"}, "yard": versions},
        task_selection={"limit": 3, "honest": False, "task_file": ["a.yaml", "b.yaml"]},
        eval_args={"scorer_timeout": 5, "score_main_on_attack": True},
        model_roles={"untrusted": "u", "monitor": "m"},
    )
    _, (line,), said = convert("--honest", honest, "--attack", attack)
    with EvalArchive.open(line["eval"]) as archive:
        metadata = archive.header()["eval"]["metadata"]
    assert (metadata["command"], metadata["ct_version"], "extra" in metadata) == (None, "v1", False)
    assert metadata["env_versions"]["box"]["image_digest"] == "sha"
    assert list(metadata["env_versions"]) == ["box", "yard"]
    assert metadata["task_selection"] == {"limit": 3, "task_file": ["h.yaml", "a.yaml", "b.yaml"]}
    assert metadata["eval_args"] == {"scorer_timeout": 5, "score_main_on_attack": True}
    assert metadata["model_roles"] == {"untrusted": "u", "trusted": "t", "monitor": "m"}
    assert "header metadata 'command', on which the runs do not agree" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"protocol_selection": {"name": "ct/other", "args": {}}}, "differ in protocol_selection"),
        ({"protocol_selection": {"name": TRUSTED, "args": {"sus_threshold": 7}}}, "'sus_threshold': 70.0"),
        ({"white": {"private_tools": [], "harnesses": None, "max_steps": 9}}, "differ in white"),
        ({"model_roles": {"untrusted": "other"}}, "the untrusted model (demo/agent and other)"),
    ],
)
def test_runs_that_differ_are_refused(
    tmp_path: Path, convert: Convert, changed: JsonObject, said: str
) -> None:
    honest = honest_log(tmp_path / "h.eval", "h1")
    attack = attack_log(tmp_path / "a.eval", "a1", **changed)
    code, lines, error = convert("--honest", honest, "--attack", attack)
    assert (code, lines, list((tmp_path / "out").iterdir())) == (1, [], [])
    assert said in error


def test_a_threshold_as_text_or_number_is_the_same(tmp_path: Path, convert: Convert) -> None:
    same = {"protocol_selection": {"name": TRUSTED, "args": {"sus_threshold": 8.0}}}
    attack = attack_log(tmp_path / "a.eval", "a1", **same)
    assert convert("--honest", honest_log(tmp_path / "h.eval", "h1"), "--attack", attack)[0] == 0


def test_an_honest_and_an_attack_sample_cannot_share_an_id_and_epoch(
    tmp_path: Path, convert: Convert
) -> None:
    honest, attack = honest_log(tmp_path / "h.eval", "s1", "s2"), attack_log(tmp_path / "a.eval", "s2", "s3")
    code, lines, error = convert("--honest", honest, "--attack", attack)
    assert (code, lines) == (1, [])
    assert "share 1 sample ids and epochs: s2" in error


def test_an_attack_run_without_side_tasks_is_refused(tmp_path: Path, convert: Convert) -> None:
    plain = [sample_2x("p1")]
    attack = str(write_log(tmp_path / "p.eval", header_2x(["p1"]), plain))
    code, _, error = convert("--honest", honest_log(tmp_path / "h.eval", "h1"), "--attack", attack)
    assert code == 1
    assert "p.eval: sample p1: has no side task" in error


def test_current_logs_are_merged_too_and_a_merged_log_is_no_stream(tmp_path: Path, convert: Convert) -> None:
    honest, attack = honest_log(tmp_path / "h.eval", "h1"), attack_log(tmp_path / "a.eval", "a1")
    parts = [convert(flag, log)[1][0]["eval"] for flag, log in (("--honest", honest), ("--attack", attack))]
    _, (merged,), _ = convert("--honest", parts[0], "--attack", parts[1])
    _, (at_once,), _ = convert("--honest", honest, "--attack", attack)
    assert Path(merged["eval"]).read_bytes() == Path(at_once["eval"]).read_bytes()
    code, _, error = convert("--honest", merged["eval"], "--attack", parts[1])
    assert code == 1
    assert "differ in" in error or "has side tasks, so it is not honest" in error or "share" in error


def test_two_runs_from_before_versions_merge(tmp_path: Path, convert: Convert) -> None:
    paths = {id: tmp_path / f"{id}.eval" for id in ("one", "two")}
    logs = [str(write_log(path, header_old(eval_id=id), [sample_old()])) for id, path in paths.items()]
    code, (line,), _ = convert("--honest", logs[0], "--attack", logs[1])
    assert (code, line["converted_from"]) == (0, ["one", "two"])
    assert [f.message for f in validate_log(Path(line["eval"])) if f.level == "error"] == []
