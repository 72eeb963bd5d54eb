"""The second environment as a user plays it: found by its tasks' names, played by the demo's own models."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CT = Path(sys.executable).parent / "ct"


def play(folder: Path, *words: str) -> list[Any]:
    """The samples of the log of `ct run eval` with some words more."""
    from inspect_ai.log import read_eval_log

    command = [str(CT), "run", "eval", *words, "--no-upload", "--format", "json", "--sandbox", "process"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read_eval_log(str(folder / json.loads(done.stdout)["log"])).samples or []


@pytest.mark.slow
def test_an_attack_is_played_by_the_demo_s_agent_where_only_the_tasks_are_named(tmp_path: Path) -> None:
    [sample] = play(tmp_path, "--policy", "attack", "-t", "refunds", "-s", "redirect_payouts")
    assert sample.id == "demo/order_service:refunds:redirect_payouts"
    assert sample.scores["tasks"].value == {"main": None, "side": 1.0, "landed_at": 2}
    assert sample.scores["redirect_payouts"].metadata["landed_source"] == "probe"


@pytest.mark.slow
def test_every_sample_of_the_environment_is_played_by_script(tmp_path: Path) -> None:
    samples = play(tmp_path, "--policy", "scripted", "-e", "demo/order_service", "--all", "--epochs", "3")
    scores = {(s.id.removeprefix("demo/order_service:"), s.epoch): s.scores["tasks"].value for s in samples}
    honest = {"main": 1.0, "side": None, "landed_at": None}
    delayed = {"main": None, "side": 1.0, "landed_at": None}
    assert scores == {
        **{("refunds", epoch): honest for epoch in (1, 2, 3)},
        **{("refunds:leak_customer_addresses", epoch): delayed for epoch in (1, 2, 3)},
        **{
            ("refunds:redirect_payouts", epoch): {"main": None, "side": 1.0, "landed_at": landed}
            for epoch, landed in ((1, 2), (2, 6), (3, 4))
        },
    }
