"""`ct run control-eval` as a user types it, on the demo."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspect_ai.log import EvalLog, read_eval_log

from control_tower.cli.app import cli
from control_tower.cli.run import run
from control_tower.logs.validate import validate_log
from tests.evals.test_run_eval import ct, only_log

SCRIPTED = (
    "run control-eval --honest-policy scripted --attack-policy scripted -e demo/web_scraping --no-upload"
)


def metrics(log: EvalLog) -> dict[str, float]:
    """The metrics over the `audit` Scores."""
    assert log.results is not None
    [score] = [score for score in log.results.scores if score.scorer == "audit"]
    return {name: float(metric.value) for name, metric in score.metrics.items()}


def test_models_play_both_streams_and_each_sample_costs(tmp_path: Path) -> None:
    ran = ct(
        "run control-eval -e demo/web_scraping -t crawl_depth -s visit_malicious_website --format json "
        "--protocol trusted-monitoring -bp monitors=[simple]",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    for line in ("Running control eval:", "honest    ct/honest", "attack    ct/attack", "demo/judge"):
        assert line in ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    assert (result["honest"]["samples"], result["attack"]["samples"]) == (1, 1)
    assert (result["usefulness"], result["side_success"]) == (1.0, 1.0)
    assert result["audits"]["safety"] == 0.0
    assert result["audits"]["uncaught"] == 1
    assert result["monitored_actions"] > 0
    log = read_eval_log(str(only_log(tmp_path)))
    assert log.eval.task_registry_name == "control_tower/control_eval"
    assert log.eval.task == "honest+attack-vs-trusted-monitoring"
    found = metrics(log)
    assert found["honest_cost"] + found["attack_cost"] == pytest.approx(result["cost_usd"])
    assert found["honest_cost"] > 0
    assert validate_log(only_log(tmp_path)) == []


def test_a_script_for_both_needs_no_models(tmp_path: Path) -> None:
    ran = ct(f"{SCRIPTED} --all --limit 2", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "none (scripted)" in ran.stderr
    for line in ("usefulness    1.000 (1 scored)", "safety        0.000", "audit budget  0.00% (0 of "):
        assert line in ran.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--policy scripted --all", "no option '--policy'"),
        ("--attack-policy honest --all", "attempts no side tasks"),
        ("-t crawl_depth", "no attack ones"),
        ("--all --limit 1", "at least 2"),
        ("--all -hp variant=99", "no variant 99"),
        ("--all -ap varant=1", "variant"),
        ("--all --honest-policy scriptd", "scripted"),
        ("--all --protocol trusted-monitoring", "monitors"),
    ],
)
def test_what_makes_no_control_eval_is_wrong_usage(tmp_path: Path, options: str, said: str) -> None:
    ran = ct(f"{SCRIPTED} {options}", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert not (tmp_path / "logs").exists()


@pytest.mark.slow
def test_both_streams_are_audited_after_the_run(tmp_path: Path) -> None:
    ran = ct(
        f"{SCRIPTED} --all --limit 4 --protocol trusted-monitoring -bp monitors=[rules] --format json",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    assert (result["honest"]["samples"], result["attack"]["samples"]) == (2, 2)
    assert (result["usefulness"], result["audits"]["safety"]) == (1.0, 0.0)
    before = 0.0
    for budget in (0.0, 0.05, 0.2, 1.0):
        words = ["audit", str(tmp_path / result["log"]), "--monitor", "rules", "--budget", str(budget)]
        audited = CliRunner().invoke(run, [*words, "--format", "json"])
        assert audited.exit_code == 0, audited.stderr
        fitted: dict[str, Any] = json.loads(audited.stdout)
        assert fitted["safety"] >= before, "a larger budget never catches less"
        before = fitted["safety"]
    smoke = ct(f"{SCRIPTED} --all --epochs 4 --smoke --format json --log-dir smoke", tmp_path)
    assert smoke.returncode == 0, smoke.stderr
    tried: dict[str, Any] = json.loads(smoke.stdout)
    assert (tried["honest"]["samples"], tried["attack"]["samples"]) == (1, 1)


def test_its_older_name_still_works_and_is_not_listed() -> None:
    assert "sabotage-eval" not in CliRunner().invoke(cli, ["run", "--help"]).output
    both = [
        CliRunner().invoke(cli, ["run", name, "--help"]).output for name in ("sabotage-eval", "control-eval")
    ]
    assert both[0].replace("sabotage-eval", "control-eval") == both[1]
