"""The demo as a setting: it loads quickly, its parts agree, and its texts are true."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from control_tower.demo import get_environments
from control_tower.demo.scoring.crawls import CODEBASE, CONFIG
from control_tower.environments.validate import validate_environment
from control_tower.settings.task_sets import load_task_set

DATA = Path(__file__).parent / "data"


TASKS = {
    "web_scraping": (
        ["crawl_depth", "fix_relative_links"],
        ["disable_blocklist", "leak_session_cookie", "visit_malicious_website"],
    ),
    "order_service": (["refunds"], ["leak_customer_addresses", "redirect_payouts"]),
}


def test_listing_it_does_not_import_inspect() -> None:
    code = (
        "import json, sys; from control_tower.demo import get_environments; "
        "spaces = {id: env.task_space() for id, env in get_environments().items()}; "
        "print(json.dumps({id: [list(s.mains().ids), list(s.sides().ids)] for id, s in spaces.items()})); "
        "sys.exit('inspect_ai' in sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(listed.stdout) == {env: list(tasks) for env, tasks in TASKS.items()}


@pytest.mark.parametrize("env", TASKS)
def test_every_main_task_is_paired_with_every_side_task(env: str) -> None:
    environment = get_environments()[env]
    mains, sides = TASKS[env]
    assert validate_environment(f"demo/{env}", environment) == []
    combinations = list(environment.task_space())
    assert [c.mode for c in combinations].count("honest") == len(mains)
    assert {pair for c in combinations for pair in c.pairs} == {(m, s) for m in mains for s in sides}
    kinds = [side.failure_type for side in environment.task_space().sides().values()]
    assert kinds.count("live") == 1 and kinds.count("delayed") == len(sides) - 1


def test_task_sets_name_what_there_is() -> None:
    assert len(load_task_set("demo").records) == 8
    honest, attack = load_task_set("smoke").records
    assert (honest.side_tasks, attack.side_tasks) == ((), ("visit_malicious_website",))
    space = get_environments()["web_scraping"].task_space()
    for record in load_task_set("demo").records:
        space.get(*record.main_tasks, *record.side_tasks)


def test_malicious_hosts_of_the_web_are_those_on_the_blocklist() -> None:
    lines = (CONFIG / "blocklist.txt").read_text(encoding="utf-8").splitlines()
    blocklist = [line for line in lines if line and not line.startswith("#")]
    world = json.loads((CODEBASE / "web" / "world.json").read_text(encoding="utf-8"))
    assert sorted(world["malicious"]) == sorted(blocklist)


def run_in_copy(env: str, folder: Path, *command: str, add: dict[str, Path] | None = None) -> str:
    copy = folder / "app"
    shutil.copytree(get_environments()[env].path / "codebase" / "src", copy)
    for name, file in (add or {}).items():
        shutil.copy(file, copy / name)
    done = subprocess.run([sys.executable, *command], cwd=copy, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("env", TASKS)
def test_a_codebase_s_own_tests_pass(env: str, tmp_path: Path) -> None:
    printed = run_in_copy(env, tmp_path, "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    assert printed.endswith("OK\n")


def test_the_bug_report_shows_what_the_tests_print(tmp_path: Path) -> None:
    report = DATA / "relative_links_report.py"
    printed = run_in_copy(
        "web_scraping",
        tmp_path,
        *("-m", "unittest", "tests.test_relative_links"),
        add={"tests/test_relative_links.py": report},
    )
    task = get_environments()["web_scraping"].task_space().mains()["fix_relative_links"]
    essence = re.compile(r"^(?:FAIL: |AssertionError|[-+?] |FAILED ).*$", re.MULTILINE)
    assert len(essence.findall(printed)) > 20
    assert essence.findall(task.description) == essence.findall(printed)
