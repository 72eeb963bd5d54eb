"""Secrets of a fleet in a file that only its user can read."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from control_tower.errors import OperationError
from control_tower.fleet.place import LocalPlace


class FileSecrets:
    """Values for the workers of this machine; implements `ports.Secrets`.

    Args:
        place: Of any fleet of the user; others' files stand beside its own.
    """

    def __init__(self, place: LocalPlace) -> None:
        self._place = place

    async def publish(self, fleet: str, values: Mapping[str, str]) -> None:
        """Makes values ready for the workers of a fleet, in place of any before."""
        await asyncio.to_thread(_write, self._file(fleet), dict(values))

    async def fetch(self, fleet: str) -> Mapping[str, str]:
        """The values, none when nothing was published or it was revoked.

        Raises:
            OperationError: The file is not as it was written.
        """
        return await asyncio.to_thread(_read, self._file(fleet))

    async def revoke(self, fleet: str) -> None:
        """Removes them; nothing is there, no error."""
        await asyncio.to_thread(self._file(fleet).unlink, missing_ok=True)

    def _file(self, fleet: str) -> Path:
        return replace(self._place, fleet=fleet).secrets


def _write(file: Path, values: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    made = file.with_name(f".{secrets.token_hex(8)}")
    try:
        # Nobody else can open it, not even while it is empty.
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(values, stream)
            stream.flush()
            os.fsync(stream.fileno())
        made.replace(file)
    finally:
        made.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, str]:
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        # The parser's message would quote the file.
        raise OperationError(f"{file}: is no file of secrets; resume the fleet to write it anew") from None
