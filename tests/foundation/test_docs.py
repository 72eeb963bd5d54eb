"""What the documentation shows works: its commands are run, its links lead somewhere."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Command:
    """A line after `$`, how it ends, and lines that its output has."""

    line: str
    code: int
    output: list[str]


def commands(page: Path, kind: str) -> list[Command]:
    """The commands of a page's `console` blocks of a kind: `` or `slow`."""
    found: list[Command] = []
    for language, info, text in BLOCK.findall(page.read_text()):
        if (language, info) != ("console", kind):
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                ends = re.search(r"# exit (\d+)$", line)
                found.append(Command(line[2:], int(ends[1]) if ends else 0, []))
            elif line.strip() not in ("", "..."):
                found[-1].output.append(line.strip())
    return found


def play(page: Path, kind: str, folder: Path) -> None:
    """Run a page's commands one after the other in an empty folder that has its named files."""
    for language, info, text in BLOCK.findall(page.read_text()):
        if language != "console" and info:
            (folder / info).parent.mkdir(parents=True, exist_ok=True)
            (folder / info).write_text(text)
    keep = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment = {
        **keep,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "CONTROL_TOWER_SETTINGS_DIR": str(folder / ".settings"),
    }
    for command in commands(page, kind):
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = f"{done.stdout}{done.stderr}"
        assert done.returncode == command.code, f"$ {command.line}\n{printed}"
        for line in command.output:
            assert " ".join(line.split()) in " ".join(printed.split()), f"{line!r} is not in:\n{printed}"


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p, "")], ids=lambda page: page.stem)
def test_commands(page: Path, tmp_path: Path) -> None:
    play(page, "", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p, "slow")], ids=lambda page: page.stem)
def test_slow_commands(page: Path, tmp_path: Path) -> None:
    play(page, "slow", tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_within_the_repository(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
