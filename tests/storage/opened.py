"""A store under test, and the ways into it past our own code."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from control_tower.storage.blobs import Assembled, Blobs
from tests.support.s3_server import S3Server


@dataclass
class Opened:
    """A store of blobs."""

    kind: str
    address: str
    blobs: Blobs
    server: S3Server | None

    def overwrite(self, key: str, data: bytes) -> None:
        """Replaces an object as only an outsider can."""
        if self.server:
            self.server.put(f"{self.address.removeprefix('s3://')}/{key}", data)
        else:
            path = Path(self.address) / key
            path.unlink()
            path.write_bytes(data)

    def everything(self) -> list[str]:
        """Everything in the store: objects, parts, files in the making."""
        if self.server:
            bucket, prefix = self.address.removeprefix("s3://").split("/", 1)
            found = self.server.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")
            return sorted(one["Key"].removeprefix(f"{prefix}/") for one in found.get("Contents", []))
        root = Path(self.address)
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def address_of(kind: str, folders: pytest.TempPathFactory) -> str:
    """A new place of a kind: `directory`, `s3` or `s3 with versions`."""
    if kind == "directory":
        return str(folders.mktemp("blobs") / "new")
    return f"s3://{'versions' if 'versions' in kind else 'plain'}/{secrets.token_hex(6)}"


def sha256(data: bytes) -> str:
    """Hex."""
    return hashlib.sha256(data).hexdigest()


async def stream(data: bytes, step: int = 65536) -> AsyncGenerator[bytes]:
    """Bytes as they come from a socket."""
    for start in range(0, len(data), step):
        yield data[start : start + step]


async def send(blobs: Blobs, upload: str, *parts: bytes) -> None:
    """All parts of an upload."""
    for number, part in enumerate(parts, 1):
        await blobs.put_part(upload, number, stream(part), sha256=sha256(part), size=len(part))


async def keep(blobs: Blobs, *parts: bytes, upload: str = "u1") -> Assembled:
    """An object, and nothing left of its upload."""
    await send(blobs, upload, *parts)
    made = await blobs.assemble(upload)
    await blobs.abandon(upload)
    return made


async def whole(blobs: Blobs, key: str) -> bytes:
    """All bytes of an object."""
    return b"".join([piece async for piece in blobs.read(key)])
