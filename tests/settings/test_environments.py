"""Environments by full and bare name."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from control_tower.errors import StateError, UsageError
from control_tower.settings import discovery, environments
from control_tower.settings.discovery import Setting
from control_tower.settings.environments import all_environments, find_environment
from tests.environments.authoring import write, write_env, write_setting


def test_full_and_bare_names_whatever_their_hyphens(settings_folder: Path) -> None:
    write_setting(settings_folder, "one", "web_scraping", "both")
    write_setting(settings_folder, "two", "gitea-platform", "both")
    found = find_environment("web-scraping")
    assert (found.id, found.setting, found.env.id) == ("one/web_scraping", "one", "web_scraping")
    assert find_environment("two/gitea_platform").id == "two/gitea-platform"
    assert find_environment("one/both").setting == "one"
    with pytest.raises(UsageError, match="in several settings; name one: one/both, two/both"):
        find_environment("both")
    with pytest.raises(UsageError, match="no environment 'web_scrapin'; did you mean 'web_scraping'"):
        find_environment("web_scrapin")
    with pytest.raises(UsageError, match="did you mean 'two/gitea-platform'"):
        find_environment("two/gitea-platfrom")
    assert [env.id for env in all_environments()] == [
        "one/both",
        "one/web_scraping",
        "two/both",
        "two/gitea-platform",
    ]


def test_a_broken_environment_is_there_but_does_not_load(settings_folder: Path) -> None:
    folder = write_setting(settings_folder, "half", "good_one")
    write(write_env(folder / "bad_one") / "__init__.py", "import no_such_package\n")
    write(settings_folder / "down" / "setting.py", "1 / 0\n")
    for name in ("bad_one", "half/bad_one", "half/bad-one"):
        with pytest.raises(StateError, match="no_such_package"):
            find_environment(name)
    with pytest.raises(StateError, match="ZeroDivisionError"):
        find_environment("down/anything")


def test_the_demo_yields_its_bare_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def env() -> Any:
        return SimpleNamespace(id="web_scraping")

    settings = {
        "theirs": Setting("theirs", None, False, {"web_scraping": env()}),
        "demo": Setting("demo", None, True, {"web_scraping": env(), "alone": env()}),
    }
    monkeypatch.setattr(environments, "load_settings", lambda: settings)
    assert find_environment("web_scraping").id == "theirs/web_scraping"
    assert find_environment("demo/web_scraping").builtin
    assert find_environment("alone").id == "demo/alone"
    broken = Setting("theirs", None, False, {}, {"web_scraping": ImportError("no package")})
    monkeypatch.setitem(settings, "theirs", broken)
    with pytest.raises(StateError, match="no package"):
        find_environment("web_scraping")
    assert find_environment("demo/web_scraping").builtin


def test_environments_added_by_code_come_first(
    settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_setting(settings_folder, "one", "shared_env")
    mine: Any = SimpleNamespace(id="shared_env")
    monkeypatch.setitem(environments.ENVIRONMENTS, "shared_env", mine)
    assert find_environment("shared_env").env is mine
    assert find_environment("one/shared_env").env is not mine


def test_the_built_in_demo_is_found_without_inspect() -> None:
    script = (
        "import sys\n"
        "from control_tower.settings.environments import find_environment\n"
        "print(find_environment('web_scraping').id, 'inspect_ai' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={discovery.SETTINGS_DIR_VARIABLE: "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["demo/web_scraping", "False"]
