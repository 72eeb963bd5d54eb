"""`ct run replay` and `--from-run` as a user types them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from control_tower.cli.app import main
from tests.logs.log_making import write_log

CT = Path(sys.executable).with_name("ct")


def ct(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a `ct` command line in a folder."""
    return subprocess.run(
        [CT, *command.split()],
        cwd=cwd,
        env={**os.environ, "CONTROL_TOWER_SETTINGS_DIR": str(cwd / "none")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("replay https://viewer.example/7", "is not the URL of a run"),
        ("eval --from-run nothing.eval --all", "excludes --all"),
        ("eval --from-run nothing.eval --task-file x", "excludes --all"),
        ("eval --from-run nothing.eval --env-arg a=b", "excludes --all"),
        ("eval --policy replay -e demo/web_scraping", "name a log with --from-run"),
        ("eval --policy test --sandbox replay -e demo/web_scraping", "name its log with --from-run"),
        ("control-eval --from-run nothing.eval --all", "excludes --all"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", *command.split()])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("command", ["replay nothing.eval", "eval --from-run nothing.eval"])
def test_a_log_that_is_not_there_ends_with_1(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", *command.split()])
    assert ended.value.code == 1
    assert "nothing.eval: there is no such file" in capsys.readouterr().err


def test_a_log_of_a_newer_format_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_log(tmp_path / "new.eval", {"eval": {"metadata": {"eval_version": "4.0"}}}, [])
    with pytest.raises(SystemExit) as ended:
        main(["run", "replay", str(path)])
    assert ended.value.code == 1
    assert "is newer than this version of ct" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_is_replayed_with_equal_scores_and_landings(tmp_path: Path) -> None:
    """Both main tasks, then each side task under cover of the first."""
    played = ct("run eval --policy scripted -e demo/web_scraping --all --limit 5 --format json", tmp_path)
    log = json.loads(played.stdout)["log"]
    again = ct(f"run replay {log} --check --format json --log-dir again", tmp_path)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    replay = result["replay"]
    assert (replay["same"], replay["compared"], replay["equal"]) == (True, 5, 5)
    assert (result["samples"], result["unscored"], result["errored"]) == (5, 0, 0)
    served = ct(f"run replay {result['log']} --check --sandbox replay --format json", tmp_path)
    assert served.returncode == 0, served.stderr
    assert json.loads(served.stdout)["replay"]["compared"] == 5
    blocked = ct(
        f"run replay {log} --check --sandbox replay --protocol block-every-other -s leak_session_cookie",
        tmp_path,
    )
    assert blocked.returncode == 1
    assert "1 left their recording" in blocked.stdout
    assert "step 0 (action 0): expected bash" in blocked.stdout
    assert "Error: the replay is not as it was recorded" in blocked.stderr


@pytest.mark.slow
def test_a_control_eval_is_replayed_by_either_command(tmp_path: Path) -> None:
    played = ct(
        "run control-eval --honest-policy scripted --attack-policy scripted -e demo/web_scraping "
        "-t crawl_depth -s visit_malicious_website --format json",
        tmp_path,
    )
    log = json.loads(played.stdout)["log"]
    again = ct(
        f"run control-eval --from-run {log} --honest-policy replay --attack-policy replay --format json",
        tmp_path,
    )
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert result["replay"]["same"] is True
    assert (result["honest"]["samples"], result["attack"]["samples"]) == (1, 1)
