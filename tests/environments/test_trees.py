"""Folders taken out of sandboxes whose owner is hostile."""

import gzip
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_tower.environments.capture import fetch_tree, put_tree
from control_tower.environments.failures import CaptureFailed, EnvironmentNotReady
from control_tower.environments.runtime_vars import RuntimeVarsSandbox
from control_tower.environments.tree import Limits, Tree, tree_of_manifest, unpack
from control_tower.environments.workspace import WorkspaceDiff, diff_trees
from tests.environments.authoring import FolderSandbox

SMALL = Limits(content_bytes=2**20, stream_bytes=4 * 2**20, entries=100, seconds=20, memory_bytes=2**29)


def tar_of(*members: tuple[tarfile.TarInfo, bytes], ended: bool = True) -> bytes:
    buffer = io.BytesIO()
    tar = tarfile.open(fileobj=buffer, mode="w")  # noqa: SIM115 - closing it would end the archive
    for info, content in members:
        tar.addfile(info, io.BytesIO(content))
    if ended:
        tar.close()
    return buffer.getvalue()


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def opened(data: bytes, limits: Limits = SMALL) -> Tree:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return anyio.run(unpack, Path(file.name), limits)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def test_an_ordinary_tree_is_read_as_it_is() -> None:
    tree = opened(
        tar_of(
            member(".", type=tarfile.DIRTYPE),
            member("./a", b"text", mode=0o4755),
            member("./d", type=tarfile.DIRTYPE, mode=0o700),
            link("./d/hard", "./a", tarfile.LNKTYPE),
            link("./soft", "/etc/passwd"),
            member("./pipe", type=tarfile.FIFOTYPE),
            member("./A", b"other case"),
            member("./\udcff\n", b"odd name"),
        )
    )
    assert tree.read("a") == tree.read("d/hard") == b"text"
    assert tree.entries["a"].mode == 0o755
    assert {path: entry.kind for path, entry in tree.entries.items()} == {
        "a": "file",
        "d": "dir",
        "d/hard": "file",
        "soft": "symlink",
        "pipe": "other",
        "A": "file",
        "\udcff\n": "file",
    }
    assert tree.read("A") == b"other case"
    assert set(tree.manifest()) == set(tree.entries) - {"d"}
    assert "a" in tree and "b" not in tree
    with pytest.raises(FileNotFoundError):
        tree.read("soft")
    folder = tree.folder
    tree.close()
    assert not folder.exists()


def _sparse_giant() -> bytes:
    info = tarfile.TarInfo("giant")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"00000000000\0"
    header[483:495] = b"77777777777\0"
    header[148:156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    return bytes(header) + bytes(1024)


def _huge_pax_header() -> bytes:
    info = tarfile.TarInfo("pax")
    info.type = tarfile.XHDTYPE
    info.size = 2**33 - 1
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


HOSTILE: dict[str, bytes] = {
    "absolute": tar_of(member("/etc/passwd", b"x")),
    "parent": tar_of(member("../x", b"x")),
    "hidden parent": tar_of(member("a/../../x", b"x")),
    "below a link": tar_of(link("a", "/etc"), member("a/passwd", b"x")),
    "below a file": tar_of(member("a", b"1"), member("a/b", b"x")),
    "below a later link": tar_of(member("a/passwd", b"x"), link("a", "/etc")),
    "twice": tar_of(member("a", b"1"), member("a", b"2")),
    "twice in other words": tar_of(member("a", b"1"), member("./a", b"2")),
    "hard link out": tar_of(link("a", "/etc/passwd", tarfile.LNKTYPE)),
    "hard link to a link": tar_of(link("a", "/etc/passwd"), link("b", "a", tarfile.LNKTYPE)),
    "hard link forward": tar_of(link("b", "a", tarfile.LNKTYPE), member("a", b"1")),
    "too big": tar_of(member("a", bytes(2**20 + 1))),
    "too many": tar_of(*(member(str(number)) for number in range(101))),
    "deep": tar_of(member("/".join("a" * 201), b"x")),
    "long name": tar_of(member("a" * 5000, b"x")),
    "bomb": gzip.compress(bytes(64 * 2**20)),
    "no tar": b"hello" * 200,
    "empty": b"",
    "cut off": tar_of(member("a", b"x" * 2000))[:1024],
    "not ended": tar_of(member("a", b"x"), ended=False),
    "damaged in the middle": tar_of(member("a", b"x"), ended=False) + b"\xff" * 512 + bytes(1024),
    "cut gzip": gzip.compress(os.urandom(5000))[:100],
    "damaged gzip": b"\x1f\x8b" + b"\xff" * 100,
    "claims more than it has": tar_of(member("a", b""))[:124] + b"00000077777\0",
    "sparse giant": _sparse_giant(),
    "huge header": _huge_pax_header(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_in_bounded_time(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(CaptureFailed):
        opened(HOSTILE[name])
    assert time.monotonic() - started < 15


def test_excluded_names_do_not_count() -> None:
    data = tar_of(
        member("node_modules/x", bytes(2**20 + 1)), member("src/.git/config", b"x"), member("src/a", b"1")
    )
    limits = Limits(content_bytes=2**20, exclude=("node_modules", ".git"))
    assert set(opened(data, limits).entries) == {"src/a"}


def test_big_files_are_told_apart_by_hash_only() -> None:
    limits = Limits(keep_bytes=10)
    one, two = (opened(tar_of(member("a", bytes(11) + end)), limits) for end in (b"1", b"2"))
    with pytest.raises(FileNotFoundError):
        one.read("a")
    diff = anyio.run(diff_trees, one, two)
    assert diff.modified == ("a",) and "differ" in diff.unified


@given(st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_archives_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    archive = bytearray(
        tar_of(member("a", b"x" * 700), link("l", "a"), member("d/" + "long" * 40, b"1"), member("e"))
    )
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(archive) - 1), st.integers(0, 255)), max_size=6)
    ):
        archive[place] = value
    try:
        tree = opened(bytes(archive))
    except CaptureFailed:
        return
    assert all(not path.startswith("/") and ".." not in path.split("/") for path in tree.entries)


texts = st.text(st.sampled_from("ab\n\u2028é"), max_size=30).map(str.encode) | st.binary(max_size=20)
trees = st.dictionaries(
    st.sampled_from(["a", "b", "d/c", "x y", "new\nline"]), st.tuples(texts, st.sampled_from([0o644, 0o755]))
)


@given(trees, trees)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_diff_names_what_differs(old: Any, new: Any) -> None:
    before, after = (
        opened(tar_of(*(member(name, text, mode=mode) for name, (text, mode) in files.items())))
        for files in (old, new)
    )
    diff = anyio.run(diff_trees, before, after)
    assert set(diff.added) == set(new) - set(old)
    assert set(diff.removed) == set(old) - set(new)
    assert set(diff.modified) == {name for name in set(old) & set(new) if old[name] != new[name]}
    assert bool(diff.unified) == bool(diff.changed)
    assert anyio.run(diff_trees, after, after) == WorkspaceDiff()
    named = anyio.run(diff_trees, tree_of_manifest(before.manifest()), after)
    assert (named.added, named.removed, named.modified) == (diff.added, diff.removed, diff.modified)


def test_changes_of_mode_kind_and_text_are_shown() -> None:
    before = opened(
        tar_of(member("run", b"x\n", mode=0o644), member("kind", b"k\n"), member("end", b"no newline"))
    )
    after = opened(
        tar_of(member("run", b"x\n", mode=0o755), link("kind", "run"), member("end", b"no newline\n"))
    )
    unified = anyio.run(diff_trees, before, after).unified
    assert "diff a/run b/run\nold mode 100644\nnew mode 100755\n" in unified
    assert "-k\n+symlink: run\n" in unified
    assert "-no newline\n\\ No newline at end of file\n+no newline\n" in unified


def test_texts_made_to_take_forever_are_shown_whole() -> None:
    one = "".join(f"{n % 127}\n" for n in range(19_000)).encode()
    two = "".join(f"{n * n % 127 * 31 % 127}\n" for n in range(19_000)).encode()
    started = time.monotonic()
    diff = anyio.run(diff_trees, opened(tar_of(member("a", one))), opened(tar_of(member("a", two))))
    assert diff.modified == ("a",) and "@@ -1,19000 +1,19000 @@" in diff.unified
    assert time.monotonic() - started < 15


class ArchiveSandbox(FolderSandbox, RuntimeVarsSandbox):
    """A machine whose provider hands out a tar."""

    def __init__(self, folder: Path, make: Callable[[Path], bool]) -> None:
        super().__init__(folder)
        self.make = make

    async def archive(self, path: str, destination: Path, *, max_bytes: int, timeout: int) -> bool:
        return self.make(destination)


def fetched(machine: FolderSandbox, root: str = "app", **options: Any) -> Tree:
    async def fetch() -> Tree:
        return await fetch_tree(machine, root, **options)

    return anyio.run(fetch)


def test_a_tree_goes_from_one_machine_to_another(tmp_path: Path) -> None:
    app = tmp_path / "agent" / "app"
    (app / "sub").mkdir(parents=True)
    (app / "sub" / "run.sh").write_text("echo hi\n")
    (app / "sub" / "run.sh").chmod(0o755)
    (app / "link").symlink_to("sub/run.sh")
    (app / "out").symlink_to("/etc/passwd")
    os.mkfifo(app / "pipe")
    checker = FolderSandbox(tmp_path / "checker")
    checker.folder.mkdir()
    (checker.folder / "check").mkdir()
    (checker.folder / "check" / "old").write_text("x")
    agent = FolderSandbox(tmp_path / "agent")
    with pytest.raises(CaptureFailed, match="is a symbolic link"):
        fetched(agent)
    tree = fetched(agent, symlinks="keep")
    assert agent.commands[0][0] == "/bin/sh"

    async def put() -> None:
        await put_tree(checker, tree, "check")

    anyio.run(put)
    placed = checker.folder / "check"
    assert sorted(path.name for path in placed.iterdir()) == ["link", "sub"]
    assert (placed / "link").read_text() == "echo hi\n"
    assert os.access(placed / "sub" / "run.sh", os.X_OK)
    assert list(Path("/tmp").glob(".ct-*")) == []


def test_a_checker_that_takes_no_files_is_the_environments_fault(tmp_path: Path) -> None:
    class Refusing(FolderSandbox):
        async def exec(self, cmd: list[str], *args: Any, **kwargs: Any) -> Any:
            return await super().exec(["sh", "-c", "echo full >&2; exit 2"], *args, **kwargs)

    tree = opened(tar_of(member("a", b"x")))

    async def put() -> None:
        await put_tree(Refusing(tmp_path), tree, ".")

    with pytest.raises(EnvironmentNotReady, match="full"):
        anyio.run(put)


def test_the_providers_own_archive_is_preferred(tmp_path: Path) -> None:
    machine = ArchiveSandbox(tmp_path, lambda place: bool(place.write_bytes(tar_of(member("a", b"x")))))
    assert fetched(machine).read("a") == b"x"
    assert machine.commands == []


def test_without_one_tar_runs_inside(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a").write_text("x")
    assert fetched(ArchiveSandbox(tmp_path, lambda place: False)).read("a") == b"x"


@pytest.mark.parametrize(
    "error", [FileNotFoundError("x"), RuntimeError("gone"), TimeoutError(), OverflowError()]
)
def test_whatever_a_machine_raises_is_a_failed_capture(tmp_path: Path, error: Exception) -> None:
    def fail(place: Path) -> bool:
        raise error

    with pytest.raises(CaptureFailed):
        fetched(ArchiveSandbox(tmp_path, fail))


def test_a_missing_folder_is_a_failed_capture(tmp_path: Path) -> None:
    with pytest.raises(CaptureFailed):
        fetched(FolderSandbox(tmp_path), "nowhere")
