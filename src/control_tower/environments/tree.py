"""A folder taken out of a sandbox: its entries by path, its files by hash, in a temporary folder of ours."""

from __future__ import annotations

import io
import json
import posixpath
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, Literal, cast

import anyio
import anyio.to_thread

from control_tower.environments.failures import CaptureFailed

EntryKind = Literal["file", "dir", "symlink", "other"]

_KIND_BITS: Mapping[EntryKind, int] = {"file": 0o100000, "symlink": 0o120000, "dir": 0o040000, "other": 0}
_KINDS: Mapping[int, EntryKind] = {bits: kind for kind, bits in _KIND_BITS.items()}
_REFUSED = 3


@dataclass(frozen=True)
class Limits:
    """What a captured folder may be at most; sizes in bytes, time in seconds."""

    content_bytes: int = 2 * 2**30
    """All its files together, as they claim to be."""
    stream_bytes: int = 4 * 2**30
    """The tar, decompressed."""
    entries: int = 500_000
    keep_bytes: int = 2**20
    """Files up to this size are kept; of bigger ones only the hash."""
    seconds: int = 120
    """Each step: making the tar, reading it, comparing."""
    memory_bytes: int = 2**30
    """Of the process that reads it."""
    exclude: Sequence[str] = ()
    """Names or relative paths that are left out."""


@dataclass(frozen=True)
class Entry:
    """One path of a tree; the mode holds permission bits only."""

    path: str
    kind: EntryKind
    mode: int
    sha256: str = ""
    size: int = 0
    target: str = ""
    """Of a symbolic link, as it is written there; never followed."""

    @property
    def fingerprint(self) -> str:
        """Kind, permissions and content in one string."""
        return f"{_KIND_BITS[self.kind] | self.mode:06o}:{self.sha256}"


class Tree:
    """The entries of a captured folder and the contents that were kept.

    Paths are relative, with `/`, and have no `..`. Close it, or let it be collected, to remove the
    temporary folder.
    """

    def __init__(self, folder: tempfile.TemporaryDirectory[str], entries: Mapping[str, Entry]) -> None:
        self._folder = folder
        self.entries = entries

    @property
    def folder(self) -> Path:
        """Where manifest and blobs are."""
        return Path(self._folder.name)

    def __contains__(self, path: object) -> bool:
        return path in self.entries

    def files(self) -> Iterator[str]:
        """Paths of regular files."""
        return (path for path, entry in self.entries.items() if entry.kind == "file")

    def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: no such file, or it was too big to be kept.
        """
        entry = self.entries.get(path)
        if entry is None or entry.kind != "file":
            raise FileNotFoundError(f"{path!r} is no file of the captured folder")
        return (self.folder / "blobs" / entry.sha256).read_bytes()

    def manifest(self) -> dict[str, str]:
        """Fingerprint by path, folders left out."""
        return {path: entry.fingerprint for path, entry in self.entries.items() if entry.kind != "dir"}

    def to_tar(self) -> bytes:
        """A plain tar of it, owned by root; special files are left out, and links that leave the tree."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, entry in sorted(self.entries.items()):
                info = tarfile.TarInfo(path)
                if entry.kind == "dir":
                    info.type, info.mode = tarfile.DIRTYPE, entry.mode | 0o700
                    tar.addfile(info)
                elif entry.kind == "file":
                    content = self.read(path)
                    info.size, info.mode = len(content), entry.mode | 0o400
                    tar.addfile(info, io.BytesIO(content))
                elif entry.kind == "symlink" and _stays_inside(entry):
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
                    tar.addfile(info)
        return buffer.getvalue()

    def close(self) -> None:
        """Remove the temporary folder."""
        self._folder.cleanup()


def _stays_inside(entry: Entry) -> bool:
    if entry.target.startswith("/"):
        return False
    end = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), entry.target))
    return end != ".." and not end.startswith("../")


def tree_of_manifest(manifest: Mapping[str, str]) -> Tree:
    """A tree of fingerprints only, to compare with when the contents are gone."""
    entries: dict[str, Entry] = {}
    for path, fingerprint in manifest.items():
        mode, _, digest = fingerprint.partition(":")
        bits = int(mode, 8)
        entries[path] = Entry(path, _KINDS[bits & 0o170000], bits & 0o7777, digest)
    folder = tempfile.TemporaryDirectory(prefix="ct-tree-")
    (Path(folder.name) / "blobs").mkdir()
    with (Path(folder.name) / "manifest.jsonl").open("w", encoding="utf-8") as lines:
        for entry in entries.values():
            fields = {"path": entry.path, "kind": entry.kind, "mode": entry.mode, "sha256": entry.sha256}
            lines.write(json.dumps(fields) + "\n")
    return Tree(folder, entries)


async def unpack(archive: Path, limits: Limits) -> Tree:
    """Read an untrusted tar, plain or gzip-compressed, in a bounded child process.

    Raises:
        CaptureFailed: it breaks a limit or a rule, or is damaged.
    """
    folder = tempfile.TemporaryDirectory(prefix="ct-tree-")
    given = {
        "content_bytes": limits.content_bytes,
        "stream_bytes": limits.stream_bytes,
        "entries": limits.entries,
        "keep_bytes": limits.keep_bytes,
        "exclude": list(limits.exclude),
    }
    await run_bounded("unpack_child.py", [str(archive), folder.name, json.dumps(given)], limits)
    return await anyio.to_thread.run_sync(_read_tree, folder)


def _read_tree(folder: tempfile.TemporaryDirectory[str]) -> Tree:
    entries: dict[str, Entry] = {}
    with (Path(folder.name) / "manifest.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            entry = Entry(**cast(dict[str, Any], json.loads(line)))
            entries[entry.path] = entry
    return Tree(folder, entries)


async def run_bounded(script: str, arguments: Sequence[str], limits: Limits) -> None:
    """Run a script of this folder with limits on memory, time and files, without our environment.

    Raises:
        CaptureFailed: it refused its input, or a limit ended it.
    """
    bounds = {
        "memory_bytes": limits.memory_bytes,
        "seconds": limits.seconds,
        "file_bytes": limits.stream_bytes + 2**20,
    }
    here = Path(__file__).parent
    command = [
        sys.executable,
        *("-I", "-S", str(here / "bounded_child.py"), json.dumps(bounds), str(here / script)),
        *arguments,
    ]
    try:
        with anyio.fail_after(limits.seconds):
            result = await anyio.run_process(command, stdin=DEVNULL, check=False, env={}, cwd="/")
    except TimeoutError as error:
        raise CaptureFailed(f"reading the captured folder took more than {limits.seconds} s") from error
    if result.returncode == _REFUSED:
        reason = result.stderr.decode("utf-8", "replace")[:500]
        raise CaptureFailed(f"the captured folder cannot be used: {reason}")
    if result.returncode != 0:
        last = result.stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:200]
        raise CaptureFailed(f"reading the captured folder ended with {result.returncode}: {last}")
