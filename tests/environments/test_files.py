"""Files that tasks bring."""

from pathlib import Path

import pytest

from control_tower.environments.files import sample_files
from control_tower.environments.task import MainTask, SideTask
from control_tower.errors import ValidationError


def task(root: Path | None, files: dict[str, str], task_id: str = "m") -> MainTask:
    return MainTask(task_id, task_id, "e", "work", root=root, files=files)


def test_folders_stay_folders_and_paths_become_absolute(tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "x").write_text("")
    first = task(tmp_path, {"/app/seed": "seed", "/app/x": str(tmp_path / "x")})
    assert first.files == {"/app/seed": "seed", "/app/x": str(tmp_path / "x")}
    side = SideTask("s", "s", "e", "harm", None, "live", root=tmp_path, files={"/app/y": "x"})
    assert sample_files([first, side]) == {
        "/app/seed": str(tmp_path / "seed"),
        "/app/x": str(tmp_path / "x"),
        "/app/y": str(tmp_path / "x"),
    }


@pytest.mark.parametrize(
    ("destination", "source", "message"),
    [
        ("/a", "https://x.test/f", "must be a host file"),
        ("/a", "data:,x", "must be a host file"),
        ("web:/a", "x", "names a service"),
        ("", "x", "destination is empty"),
        ("/a", "", "is empty"),
        ("/a", ".", "is empty"),
        ("/a", "../y", "leaves the task's folder"),
        ("/a", "link", "leaves the task's folder"),
        ("/a", "none", "does not exist"),
    ],
)
def test_faulty_files_are_refused(tmp_path: Path, destination: str, source: str, message: str) -> None:
    root = tmp_path / "task"
    root.mkdir()
    (root / "x").write_text("")
    (tmp_path / "y").write_text("")
    (root / "link").symlink_to(tmp_path / "y")
    with pytest.raises(ValidationError, match=message):
        sample_files([task(root, {destination: source})])


@pytest.mark.parametrize("other", ["/app/a", "/app/./a", "/app/a/b", "/app"])
def test_colliding_destinations_are_refused(tmp_path: Path, other: str) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(ValidationError, match="collides with"):
        sample_files([task(tmp_path, {"/app/a": "x"}), task(tmp_path, {other: "x"}, "n")])


def test_a_relative_source_needs_a_folder() -> None:
    with pytest.raises(ValidationError, match="has no folder"):
        sample_files([task(None, {"/a": "x"})])
