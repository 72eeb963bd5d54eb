"""A folder with all rows and logs of a site, from which a site of any kind is made again.

`rows/<table>.jsonl` has the rows in order of their ids, `blobs.jsonl` names the logs, `blobs/` holds them
unless they were left out, and `manifest.json`, written last, has the digests of these files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from control_tower.agent_runs.store.interface import Position, Row, Store, Table
from control_tower.agent_runs.store.migrations import Schema, refuse_newer
from control_tower.agent_runs.store.tables import RUNS, SCHEMA, SECRETS, THROTTLES
from control_tower.agent_runs.store.where import EVERY
from control_tower.errors import OperationError, StateError
from control_tower.logs.json_text import JsonObject
from control_tower.storage.blobs import Blobs, blob_key

_FORMAT = 1
_MANIFEST = "manifest.json"
_BLOBS = "blobs.jsonl"
_ROWS_AT_ONCE = 100
_PART = 64 * 1024 * 1024
_MADE_BY_OPENING = (SECRETS, THROTTLES)


@dataclass(frozen=True)
class Listing:
    """A file of lines."""

    lines: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup holds."""

    schema: int
    tables: Mapping[str, Listing]
    blobs: Listing
    bytes: int
    """Of all logs."""
    with_blobs: bool
    """Whether it holds the logs too, or only names them."""


async def back_up(store: Store, blobs: Blobs, folder: Path, *, with_blobs: bool) -> Manifest:
    """Writes all that a site keeps; it may be in use meanwhile.

    A run in the backup is whole: what belongs to it is there before it is, and is read after it.

    Args:
        store: Its rows.
        blobs: Its logs.
        folder: Where to; it is made, and appears when all is in it. It holds secrets: hashes of passwords
            and the key that signs addresses.
        with_blobs: Whether to copy the logs, not only name them.

    Raises:
        StateError: The folder is there already.
        OperationError: A log has other bytes than when it came in, or the disk is full.
    """
    if folder.exists():
        raise StateError(f"{folder}: is there already; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        tables: dict[str, Listing] = {}
        for table in sorted(SCHEMA.tables, key=lambda table: table is not RUNS):
            lines = _Lines(making / "rows" / f"{table.name}.jsonl")
            async for row in _rows(store, table):
                lines.add(_line(row))
            tables[table.name] = lines.end()
        size = 0
        lines = _Lines(making / _BLOBS)
        async for blob in blobs.blobs():
            lines.add(json.dumps({"key": blob.key, "size": blob.size}))
            size += blob.size
            if with_blobs:
                await _copy(blobs, blob.key, making / "blobs" / blob.key)
        manifest = Manifest(SCHEMA.version, tables, lines.end(), size, with_blobs)
        lines = _Lines(making / _MANIFEST)
        lines.add(json.dumps({"format": _FORMAT, **asdict(manifest)}))
        lines.end()
        making.rename(folder)
    except OSError as error:
        raise OperationError(f"{folder}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return manifest


async def restore(store: Store, blobs: Blobs, folder: Path, schema: Schema = SCHEMA) -> Manifest:
    """Fills an empty site from a backup, after the whole backup was checked; runs appear last.

    Args:
        store: Of today's schema; the key and the throttles that come by opening a site are replaced.
        blobs: Logs that are there already stay.
        folder: The backup.
        schema: Today's.

    Raises:
        StateError: The backup is damaged or of a newer version, or the store is not empty. After the rows
            are restored: logs that the backup only names are not there.
    """
    manifest = check(folder)
    refuse_newer(str(folder), manifest.schema, schema)
    for table in schema.tables:
        if table not in _MADE_BY_OPENING and (there := await store.count(table)):
            raise StateError(f"the store is not empty: {table.name} has {there} rows; restore into a new one")
    missing: list[str] = []
    for blob in _read(folder / _BLOBS):
        found = await blobs.head(blob["key"])
        if found is None and manifest.with_blobs:
            await _bring(blobs, folder / "blobs" / blob["key"], blob["key"], blob["size"])
        elif found is None or found.size != blob["size"]:
            missing.append(blob["key"])
    for table in _MADE_BY_OPENING:
        await store.delete(table, EVERY)
    for table in sorted(schema.tables, key=lambda table: table is RUNS):
        await _fill(store, table, folder, manifest, schema)
    if missing:
        raise StateError(
            f"all rows are restored, but {len(missing)} of {manifest.blobs.lines} logs are not where logs are"
            f" kept, as {missing[0]}; the backup was made without logs"
        )
    return manifest


def check(folder: Path) -> Manifest:
    """Reads a backup and compares all of it with its manifest.

    Raises:
        StateError: It is none, or is damaged.
    """
    manifest = _manifest(folder)
    listings = {f"rows/{name}.jsonl": listing for name, listing in manifest.tables.items()}
    for name, listing in {**listings, _BLOBS: manifest.blobs}.items():
        if _listing(folder / name) != listing:
            raise StateError(f"{folder / name}: is not as it was written; the backup is damaged")
    for blob in _read(folder / _BLOBS):
        copy = folder / "blobs" / blob["key"]
        if manifest.with_blobs and getattr(_listing(copy), "sha256", None) != _digest(blob["key"]):
            raise StateError(f"{copy}: is missing or not as it was written; the backup is damaged")
    return manifest


def _manifest(folder: Path) -> Manifest:
    try:
        said: Any = json.loads((folder / _MANIFEST).read_bytes())
        if said.pop("format") == _FORMAT:
            tables = {name: Listing(**listing) for name, listing in said.pop("tables").items()}
            return Manifest(tables=tables, blobs=Listing(**said.pop("blobs")), **said)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StateError(f"{folder}: is no backup; {_MANIFEST} is missing or damaged") from None
    raise StateError(f"{folder}: is a backup of a newer Control Tower; update control-tower")


async def _rows(store: Store, table: Table) -> AsyncIterator[Row]:
    """All rows in order of their ids."""
    after: Position | None = None
    while page := await store.find(table, after=after, limit=_ROWS_AT_ONCE, documents=True):
        for row in page:
            yield row
        after = Position(None, page[-1].id)


def _line(row: Row) -> str:
    """A row as a line; the same row is the same line whichever store it was in."""
    columns = {name: row.columns[name] for name in sorted(row.columns)}
    for name, value in columns.items():
        if isinstance(value, Mapping):
            columns[name] = dict(sorted(value.items()))
    return json.dumps({**vars(row), "columns": columns}, separators=(",", ":"))


async def _fill(store: Store, table: Table, folder: Path, manifest: Manifest, schema: Schema) -> None:
    """Adds the rows of a table, and reads them again."""
    later = [step for step in schema.migrations if step.version > manifest.schema]
    steps = [step.rewrites[table.name] for step in later if table.name in step.rewrites]
    given, kept = hashlib.sha256(), hashlib.sha256()
    lines = _read(folder / "rows" / f"{table.name}.jsonl") if table.name in manifest.tables else iter(())
    while batch := [Row(**line) for line in islice(lines, _ROWS_AT_ONCE)]:
        for step in steps:
            batch = [step(row) for row in batch]
        for row in batch:
            given.update(_line(row).encode())
        if taken := await store.insert(table, batch):
            raise StateError(f"{table.name} {min(taken)!r}: is taken; someone else writes to this store")
    async for row in _rows(store, table):
        kept.update(_line(row).encode())
    if kept.digest() != given.digest():
        raise OperationError(f"{table.name}: the store does not hold what was restored; try a new one")


async def _copy(blobs: Blobs, key: str, copy: Path) -> None:
    found = hashlib.sha256()
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("wb") as file:
        async for piece in blobs.read(key):
            found.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if found.hexdigest() != _digest(key):
        raise OperationError(f"{key}: this log has other bytes than when it came in; see ct viewer verify")


async def _bring(blobs: Blobs, copy: Path, key: str, size: int) -> None:
    """Commits a log as an upload does."""
    upload = f"restore{_digest(key)[:32]}"

    async def part(start: int) -> AsyncIterator[bytes]:
        with copy.open("rb") as file:
            file.seek(start)
            left = min(_PART, size - start)
            while left and (piece := file.read(min(left, 1024 * 1024))):
                left -= len(piece)
                yield piece

    for number, start in enumerate(range(0, size, _PART), 1):
        await blobs.put_part(upload, number, part(start), sha256=None, size=min(_PART, size - start))
    await blobs.assemble(upload, sha256=_digest(key), size=size)
    await blobs.abandon(upload)


def _digest(key: str) -> str:
    """The SHA-256 in the key of a log."""
    found = Path(key).stem
    if key != blob_key(found) or not re.fullmatch("[0-9a-f]{64}", found):
        raise StateError(f"{key!r}: is no key of a log")
    return found


class _Lines:
    """A file of lines in the making."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._found = hashlib.sha256()
        self._lines = 0

    def add(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        self._file.write(data)
        self._found.update(data)
        self._lines += 1

    def end(self) -> Listing:
        """Syncs it to the disk."""
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        return Listing(self._lines, self._found.hexdigest())


def _read(path: Path) -> Iterator[JsonObject]:
    with path.open("rb") as file:
        for line in file:
            yield json.loads(line)


def _listing(path: Path) -> Listing | None:
    """What a file is; None when it cannot be read."""
    found, lines = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(1024 * 1024):
                found.update(piece)
                lines += piece.count(b"\n")
    except OSError:
        return None
    return Listing(lines, found.hexdigest())
