"""What is installed is pinned with hashes, from no particular place, and agrees with `pyproject.toml`."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([\w.\[\],-]+)==([\w.+!]+)(?: ; ([^\\]+))?", re.MULTILINE)


def pins(file: Path) -> set[tuple[str, str]]:
    """Names and versions in a file."""
    return {(canonicalize_name(match[1]), match[2]) for match in PIN.finditer(file.read_text())}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_package_has_a_version_and_hashes_and_no_address(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"://|^-|^--|/", re.sub(r"--hash=sha256:\w{64}", "", text), re.MULTILINE)
    packages = re.split(r"\n(?=\w)", text.partition("\n")[2].partition("\n")[2])
    assert len(packages) > 50
    for package in packages:
        assert PIN.match(package), package
        assert "--hash=sha256:" in package, package


def test_the_files_agree() -> None:
    everything = pins(ROOT / "requirements" / "dev.txt")
    for file in FILES:
        assert pins(file) <= everything, file.name


def test_the_pins_are_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"] + project["dependency-groups"]["build"]
    extras = [item for extra in project["project"]["optional-dependencies"].values() for item in extra]
    wanted = {
        "runtime": runtime,
        "providers": project["project"]["dependencies"] + extras,
        "dev": runtime + extras + project["dependency-groups"]["dev"],
    }
    for stem, items in wanted.items():
        pinned = pins(ROOT / "requirements" / f"{stem}.txt")
        for requirement in map(Requirement, items):
            versions = [Version(v) for name, v in pinned if name == canonicalize_name(requirement.name)]
            assert versions, f"{requirement} is not in {stem}.txt: run `make pins`"
            assert all(version in requirement.specifier for version in versions), (
                f"{requirement} in {stem}.txt"
            )
