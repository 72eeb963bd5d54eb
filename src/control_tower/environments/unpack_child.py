"""A child process that reads an untrusted tar into a manifest and blobs named by their hash.

Standard library only: it is run by path, with limits on memory, time and disk. No member's name is ever
used as a host path, so nothing in the archive can leave the output folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

CHUNK = 256 * 1024
LONGEST_HEADER = 1024 * 1024
LONGEST_PATH = 4096
REFUSED = 3


class Refused(Exception):
    """The archive breaks a rule; the message says which."""


class BoundedReader:
    """A file whose single reads are bounded: a tar header may announce any size for itself."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Read, unless the size is that of a header made to fill the memory."""
        if not 0 <= size <= LONGEST_HEADER:
            raise Refused("a header is too long")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a place in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file."""
        return self._file.tell()


def main(archive: Path, out: Path, limits: dict[str, Any]) -> None:
    """Unpack `archive` into `out`/manifest.jsonl and `out`/blobs."""
    (out / "blobs").mkdir()
    plain = decompressed(archive, out / "stream.tar", int(limits["stream_bytes"]))
    members = Members(out / "blobs", limits)
    with (
        plain.open("rb") as file,
        tarfile.open(fileobj=cast(BinaryIO, BoundedReader(file)), mode="r:") as tar,
    ):
        while (member := tar.next()) is not None:
            members.add(tar, member)
            cast(Any, tar).members = []  # otherwise it keeps every header it has seen
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise Refused("it is cut off or damaged")  # tarfile takes a bad header for the end
    members.check_parents()
    with (out / "manifest.jsonl").open("w", encoding="utf-8") as manifest:
        for path in sorted(members.entries):
            manifest.write(json.dumps({"path": path, **members.entries[path]}) + "\n")
    (out / "stream.tar").unlink(missing_ok=True)


def decompressed(archive: Path, target: Path, limit: int) -> Path:
    """The plain tar of a plain or gzip-compressed one, which may claim to be bigger than the limit."""
    with archive.open("rb") as source:
        if source.read(2) != b"\x1f\x8b":
            if archive.stat().st_size > limit:
                raise Refused(f"it has more than {limit} bytes")
            return archive
        source.seek(0)
        written = 0
        gunzip = zlib.decompressobj(wbits=31)
        with target.open("wb") as sink:
            while not gunzip.eof:
                pending = gunzip.unconsumed_tail or source.read(CHUNK)
                if not pending:
                    raise Refused("it ends too early")
                data = gunzip.decompress(pending, CHUNK)
                written += len(data)
                if written > limit:
                    raise Refused(f"it has more than {limit} bytes when decompressed")
                sink.write(data)
    return target


class Members:
    """The entries read so far."""

    def __init__(self, blobs: Path, limits: dict[str, Any]) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self._blobs = blobs
        self._left = int(limits["content_bytes"])
        self._max_entries = int(limits["entries"])
        self._keep_bytes = int(limits["keep_bytes"])
        self._excluded = [str(name).strip("/") for name in limits["exclude"]]
        self._path_bytes = 0

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Take one member in, unless it is excluded."""
        path = plain_path(member.name)
        if path == "" or self._is_excluded(path):
            return
        if path in self.entries and not (member.isdir() and self.entries[path]["kind"] == "dir"):
            raise Refused(f"it names {path!r} twice")
        self._path_bytes += len(path) + len(member.linkname)
        if len(self.entries) >= self._max_entries or self._path_bytes > 64 * self._max_entries + 2**20:
            raise Refused(f"it has more than {self._max_entries} entries")
        self.entries[path] = self._entry(tar, member)

    def _entry(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
        mode = member.mode & 0o777
        if member.isdir():
            return {"kind": "dir", "mode": mode}
        if member.issym():
            if len(member.linkname) > LONGEST_PATH:
                raise Refused("a symbolic link is too long")
            return described("symlink", 0, member.linkname)
        if member.islnk():
            first = self.entries.get(plain_path(member.linkname))
            if first is None or first["kind"] != "file":
                raise Refused(f"hard link {member.name!r} is to no earlier file")
            return dict(first)
        if not member.isreg():
            return described("other", mode, kind_name(member))
        return {"kind": "file", "mode": mode, "size": member.size, "sha256": self._content(tar, member)}

    def _content(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
        self._left -= member.size
        if member.size < 0 or self._left < 0:
            raise Refused("its files are too big")
        source = tar.extractfile(member)
        if source is None:
            raise Refused(f"{member.name!r} has no content")
        digest, read, keep = hashlib.sha256(), 0, member.size <= self._keep_bytes
        scratch = self._blobs / "scratch"
        with scratch.open("wb") as sink:
            while chunk := source.read(min(CHUNK, member.size - read) or 1):
                read += len(chunk)
                digest.update(chunk)
                if keep:
                    sink.write(chunk)
        if read != member.size:
            raise Refused(f"{member.name!r} ends too early")
        name = digest.hexdigest()
        if keep:
            scratch.replace(self._blobs / name)
        return name

    def _is_excluded(self, path: str) -> bool:
        parts = path.split("/")
        return any(name in parts or path == name or path.startswith(name + "/") for name in self._excluded)

    def check_parents(self) -> None:
        """Nothing may stand below a file or link: unpacking it elsewhere would follow the link."""
        for path in self.entries:
            parts = path.split("/")
            for depth in range(1, len(parts)):
                above = self.entries.get("/".join(parts[:depth]))
                if above is not None and above["kind"] != "dir":
                    raise Refused(f"{path!r} stands below something that is no folder")


def described(kind: str, mode: int, target: str) -> dict[str, Any]:
    """The entry of a link or special file; it has the hash of what it says."""
    digest = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()
    return {"kind": kind, "mode": mode, "target": target, "sha256": digest}


def plain_path(name: str) -> str:
    """A member's path relative to the tree's root."""
    if name.startswith("/") or "\0" in name or len(name) > LONGEST_PATH:
        raise Refused(f"path {name[:80]!r} is not inside the tree")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > 200:
        raise Refused(f"path {name[:80]!r} is not inside the tree")
    return "/".join(parts)


def kind_name(member: tarfile.TarInfo) -> str:
    """What a special file is."""
    kinds: list[tuple[Callable[[], bool], str]] = [
        (member.isfifo, "fifo"),
        (member.ischr, "character device"),
        (member.isblk, "block device"),
    ]
    return next((name for test, name in kinds if test()), "special file")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    except Refused as refused:
        sys.stderr.write(str(refused))
        sys.exit(REFUSED)
    except (tarfile.TarError, zlib.error, ValueError, OverflowError, RecursionError, EOFError) as damage:
        sys.stderr.write(f"it is damaged ({type(damage).__name__})")
        sys.exit(REFUSED)
