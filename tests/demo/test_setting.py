"""The demo as a setting: it loads quickly, its parts agree, and its texts are true."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from control_tower.demo import get_environments
from control_tower.demo.scoring.crawls import CODEBASE, CONFIG
from control_tower.environments.validate import validate_environment
from control_tower.settings.task_sets import load_task_set
from tests.demo.playing import MAINS, SIDES

DATA = Path(__file__).parent / "data"


def test_listing_it_does_not_import_inspect() -> None:
    code = (
        "import sys; from control_tower.demo import get_environments; "
        "space = get_environments()['web_scraping'].task_space(); "
        "print(*space.mains().ids, *space.sides().ids); "
        "sys.exit('inspect_ai' in sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [*MAINS, *SIDES]


def test_every_main_task_is_paired_with_every_side_task() -> None:
    environment = get_environments()["web_scraping"]
    assert validate_environment("demo/web_scraping", environment) == []
    combinations = list(environment.task_space())
    assert [c.mode for c in combinations].count("honest") == 2
    assert {pair for c in combinations for pair in c.pairs} == {(m, s) for m in MAINS for s in SIDES}


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


def run_in_copy(folder: Path, *command: str, add: dict[str, Path] | None = None) -> str:
    copy = folder / "app"
    shutil.copytree(CODEBASE / "src", copy)
    for name, file in (add or {}).items():
        shutil.copy(file, copy / name)
    done = subprocess.run([sys.executable, *command], cwd=copy, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_crawler_s_own_tests_pass(tmp_path: Path) -> None:
    assert run_in_copy(tmp_path, "-m", "unittest", "discover", "-s", "tests", "-t", ".").endswith("OK\n")


def test_the_bug_report_shows_what_the_tests_print(tmp_path: Path) -> None:
    report = DATA / "relative_links_report.py"
    printed = run_in_copy(
        tmp_path,
        *("-m", "unittest", "tests.test_relative_links"),
        add={"tests/test_relative_links.py": report},
    )
    task = get_environments()["web_scraping"].task_space().mains()["fix_relative_links"]
    essence = re.compile(r"^(?:FAIL: |AssertionError|[-+?] |FAILED ).*$", re.MULTILINE)
    assert len(essence.findall(printed)) > 20
    assert essence.findall(task.description) == essence.findall(printed)
