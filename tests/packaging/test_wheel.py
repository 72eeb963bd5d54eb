"""The wheel holds everything the package needs, and nothing else."""

import email
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "src/control_tower"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    tracked = {name.removeprefix("src/") for name in listed.split("\0") if (ROOT / name).is_file()}
    shipped = {name for name in names(wheel) if name.startswith("control_tower/")}
    assert shipped == tracked
    for ending in (".py", ".yml", ".md", ".jsonl"):
        assert any(name.endswith(ending) for name in shipped), ending


def test_nothing_but_the_package_is_in_the_wheel(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"control_tower"}
    assert any(name.endswith("/licenses/LICENSE") for name in names(wheel))


def test_entry_points_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        headers = email.message_from_bytes(archive.read(metadata))
        entry_points = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert headers["Requires-Python"] == ">=3.11"
    assert set(headers.get_all("Provides-Extra", [])) >= {"openai", "anthropic"}
    assert "ct = control_tower.cli:main" in entry_points
    assert "demo = control_tower.demo:get_environments" in entry_points
