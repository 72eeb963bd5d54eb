"""Files from a viewer or from S3, kept in a folder: asked whether they changed, resumed, checked."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import httpx

from control_tower.client.prepared import PIECE, Progress
from control_tower.client.session import Viewer
from control_tower.errors import OperationError
from control_tower.storage.source import open_source

ATTEMPTS = 5
"""How often a download that breaks off goes on from where it was."""

_SHA256 = re.compile(r'"([0-9a-f]{64})"')
_LONGEST_NAME = 150


@dataclass(frozen=True)
class Kept:
    """What is known of a file in the folder, or of the part of it that has come."""

    origin: str
    """The viewer, or the object's address."""
    e_tag: str
    sha256: str | None = None
    """None: it is not here whole."""


def safe_name(text: str) -> str:
    """A text as the name of a file; texts that differ have names that differ."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", text).lstrip(".")[:_LONGEST_NAME]
    return safe if safe == text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


async def fetch(
    viewer: Viewer, path: str, target: Path, progress: Progress | None = None, *, again: bool = False
) -> Path:
    """Downloads a file, unless the one that is there is what the viewer has.

    Args:
        viewer: Where from.
        path: Below its address.
        target: The file; whole or not there, and of the bytes that the viewer says where it says so.
        progress: Is told how far it is.
        again: Download it whatever is there.

    Raises:
        OperationError: The viewer cannot be reached, or what came is damaged.
        ExpectedError: The viewer refuses it.
    """
    with _Folder.of(target) as folder:
        if again:
            folder.clear()
        for left in reversed(range(ATTEMPTS)):
            try:
                await _download(viewer, path, folder, progress)
            except httpx.TransportError as error:
                if not left:
                    raise OperationError(f"{viewer.url}: the download broke off: {error}") from error
                await asyncio.sleep(0.5)
            else:
                break
    return target


def fetch_s3(address: str, target: Path, progress: Progress | None = None, *, again: bool = False) -> Path:
    """Downloads an object from S3, unless the one that is there is of its ETag.

    Raises:
        StateError: There is no such object, or there are no credentials.
        OperationError: It cannot be read, or changed meanwhile.
    """
    with _Folder.of(target) as folder:
        if again:
            folder.clear()
        source = open_source(address)
        coming = Kept(address, getattr(source, "e_tag", ""))
        if folder.has(coming):
            return target
        folder.begin(coming)
        with folder.part.open("ab") as part:
            for at in range(part.tell(), source.size, PIECE):
                part.write(source.read_at(at, min(PIECE, source.size - at)))
                if progress:
                    progress("downloading", part.tell(), source.size)
        folder.finish(coming, source.size)
    return target


async def _download(viewer: Viewer, path: str, folder: _Folder, progress: Progress | None) -> None:
    known = folder.known(viewer.url)
    headers = {"Accept-Encoding": "identity"}
    if known and folder.has(known):
        headers["If-None-Match"] = known.e_tag
    elif known and known.sha256 is None and folder.part.exists() and not known.e_tag.startswith("W/"):
        headers |= {"Range": f"bytes={folder.part.stat().st_size}-", "If-Range": known.e_tag}
    async with viewer.stream(path, headers=headers, accept=frozenset({304, 416})) as answer:
        if answer.status_code == 304:
            return
        if answer.status_code != 206:
            folder.forget()
        if answer.status_code == 416:
            raise httpx.ReadError("the part that is here is longer than the whole")
        coming = Kept(viewer.url, answer.headers.get("ETag", ""))
        folder.begin(coming)
        with folder.part.open("ab") as part:
            size = part.tell() + int(answer.headers.get("Content-Length") or 0)
            async for piece in answer.aiter_raw():
                part.write(piece)
                if progress:
                    progress("downloading", part.tell(), size)
        folder.finish(coming, size if "Content-Length" in answer.headers else None)


class _Folder:
    """A file's place: the file, the part of it that has come, and a note on both. One process at a time."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.part = target.with_name(f".{target.name}.part")
        self._note = target.with_name(f".{target.name}.json")

    @classmethod
    @contextmanager
    def of(cls, target: Path) -> Generator[_Folder]:
        """Waits until no other process downloads the same file."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.with_name(f".{target.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield cls(target)
        except OSError as error:
            raise OperationError(f"{target}: cannot be written: {error.strerror or error}") from error

    def known(self, origin: str) -> Kept | None:
        """What is noted of a file that came from there; None when nothing is that can be asked about."""
        try:
            kept = Kept(**json.loads(self._note.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        return kept if kept.e_tag and kept.origin == origin else None

    def has(self, wanted: Kept) -> bool:
        """Whether the file is there, as it came, of this origin and ETag."""
        kept = self.known(wanted.origin)
        if kept is None or kept.e_tag != wanted.e_tag or not self.target.is_file():
            return False
        return kept.sha256 == _digest(self.target)

    def begin(self, coming: Kept) -> None:
        """Notes what is coming; a part of something else is dropped."""
        if self.known(coming.origin) != coming:
            self.forget()
        self._note.write_text(json.dumps(asdict(coming)))

    def forget(self) -> None:
        """Drops the part."""
        self.part.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forgets all there is of the file; it stays until another has come."""
        self.forget()
        self._note.unlink(missing_ok=True)

    def finish(self, came_as: Kept, size: int | None) -> None:
        """Puts the file in its place.

        Raises:
            OperationError: It is not what was announced; the part is dropped.
        """
        came = self.part.stat().st_size
        if size is not None and came < size:
            raise httpx.ReadError(f"{came} of {size} bytes came")
        digest = _digest(self.part)
        announced = _SHA256.fullmatch(came_as.e_tag)
        if (size is not None and came != size) or (announced and announced[1] != digest):
            self.forget()
            raise OperationError(f"{self.target}: what came is not what the viewer has; try again")
        self.part.replace(self.target)
        self._note.write_text(json.dumps(asdict(replace(came_as, sha256=digest))))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
