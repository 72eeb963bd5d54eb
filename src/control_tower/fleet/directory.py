"""A store in a directory: an object appears under its name when it is whole on the disk."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from control_tower.errors import ValidationError
from control_tower.fleet.ports import Body, Entry, Head, Object, Unreachable, open_body

P = ParamSpec("P")
T = TypeVar("T")

_HIDDEN = "."
"""What names begin with that are no objects: files in the making, metadata, the lock."""


class DirectoryStore:
    """Objects as plain files, for processes of one machine.

    An etag names the file itself, so equal bytes written twice have two. Metadata of an object stands in a
    hidden file beside it, which carries the etag in its name and is there before the object is.
    """

    def __init__(self, folder: Path) -> None:
        """Names the place; folders are made when something is written.

        Args:
            folder: Of one file system that knows hard links and file locks.
        """
        self.folder = folder

    async def get(self, key: str) -> Object | None:
        return await self._run(self._read, key, True)

    async def head(self, key: str) -> Head | None:
        # Faster than to hand it to a thread.
        with self._reached():
            return self._read(key, False)

    async def create(self, key: str, body: Body, meta: Mapping[str, str] | None = None) -> str | None:
        return await self._run(self._create, key, body, meta or {})

    async def replace(
        self, key: str, body: Body, meta: Mapping[str, str] | None = None, *, etag: str
    ) -> str | None:
        return await self._run(self._replace, key, body, meta or {}, etag)

    async def put(self, key: str, body: Body) -> str:
        etag = await self._run(self._replace, key, body, {}, None)
        assert etag is not None
        return etag

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return await self._run(self._list, prefix, after)

    async def delete(self, key: str) -> None:
        await self._run(self._delete, key)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._reached():
            return await asyncio.to_thread(call, *args, **kwargs)

    @contextmanager
    def _reached(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise Unreachable(f"{error.filename or self.folder}: {error.strerror}") from error

    def _read(self, key: str, whole: bool) -> Object | None:
        path = self._path(key)
        while True:
            try:
                body = b""
                if whole:
                    with path.open("rb") as file:
                        status, body = os.fstat(file.fileno()), file.read()
                else:
                    status = path.stat()
                etag = _etag(status)
                meta = _meta(path, etag)
                # Metadata goes with its object: absent while the object is still this one, there is none.
                if meta is not None or etag == _etag(path.stat()):
                    return Object(etag, status.st_size, meta or {}, body)
            except FileNotFoundError:
                if not path.exists():
                    return None

    def _create(self, key: str, body: Body, meta: Mapping[str, str]) -> str | None:
        path = self._path(key)
        if path.exists():
            return None
        with _written(path, body, meta) as (made, etag):
            try:
                path.hardlink_to(made)
            except FileExistsError:
                _side(path, etag).unlink(missing_ok=True)
                return None
        return etag

    def _replace(self, key: str, body: Body, meta: Mapping[str, str], expected: str | None) -> str | None:
        path = self._path(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{_HIDDEN}lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                there = _etag(path.stat())
            except FileNotFoundError:
                there = None
            if expected is not None and there != expected:
                return None
            with _written(path, body, meta) as (made, etag):
                made.replace(path)
            if there:
                _side(path, there).unlink(missing_ok=True)
            return etag

    def _list(self, prefix: str, after: str) -> list[Entry]:
        inside = prefix.rpartition("/")[0]
        found: list[Entry] = []
        try:
            names = [one.name for one in os.scandir(self.folder / inside) if one.is_file()]
        except FileNotFoundError:
            return []
        for key in sorted(f"{inside}/{name}" if inside else name for name in names if name[0] != _HIDDEN):
            if key.startswith(prefix) and key > after and (head := self._read(key, False)):
                found.append(Entry(key, head.etag, head.size))
        return found

    def _delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(FileNotFoundError):
            etag = _etag(path.stat())
            path.unlink()
            _side(path, etag).unlink()

    def _path(self, key: str) -> Path:
        if any(not part or part.startswith(_HIDDEN) for part in key.split("/")):
            raise ValidationError(f"{key!r}: is no key of an object")
        return self.folder / key


@contextmanager
def _written(path: Path, body: Body, meta: Mapping[str, str]) -> Generator[tuple[Path, str]]:
    """A whole file beside `path` and its etag; the folder is on the disk when it is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"{_HIDDEN}{secrets.token_hex(8)}")
    side: Path | None = None
    try:
        with made.open("xb") as file:
            if isinstance(body, Path):
                with open_body(body) as source:
                    shutil.copyfileobj(source, file)
            else:
                file.write(body)
            file.flush()
            os.fsync(file.fileno())
            etag = _etag(os.fstat(file.fileno()))
        if meta:
            side = _side(path, etag)
            with side.open("w") as file:
                json.dump(dict(meta), file)
                file.flush()
                os.fsync(file.fileno())
        yield made, etag
    except OSError:
        if side:
            side.unlink(missing_ok=True)
        raise
    finally:
        made.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _side(path: Path, etag: str) -> Path:
    return path.with_name(f"{_HIDDEN}{path.name}.{etag}.meta")


def _meta(path: Path, etag: str) -> dict[str, str] | None:
    try:
        return json.loads(_side(path, etag).read_bytes())
    except FileNotFoundError:
        return None
