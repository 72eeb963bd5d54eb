"""Hashes of passwords, by Argon2id."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from control_tower.agent_runs.errors import BadRequest

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST = 8
LONGEST = 1024

_PASSES = 2
_MEMORY = 19 * 1024
"""KiB a hash."""

_NOBODYS = f"$argon2id$v=19$m={_MEMORY},t={_PASSES},p=1${'A' * 22}${'A' * 43}"
"""No password has this hash: what is compared with where there is no user, so that it takes as long."""

_AT_ONCE = threading.BoundedSemaphore(4)
"""So that many logins at once do not fill the memory."""


async def hash_password(password: str) -> str:
    """The hash that is kept.

    Raises:
        BadRequest: The password is too short or too long.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise BadRequest(f"a password has {SHORTEST} to {LONGEST} characters")
    return await asyncio.to_thread(_hash, password)


async def is_password(password: str, kept: str | None) -> bool:
    """Whether a password is the one of a hash; takes as long without a hash."""
    matches = await asyncio.to_thread(_verify, password[: LONGEST + 1], kept or _NOBODYS)
    return matches and kept is not None


def _hash(password: str) -> str:
    with _AT_ONCE:
        return _hasher().hash(_bytes(password))


def _verify(password: str, kept: str) -> bool:
    from argon2.exceptions import VerifyMismatchError

    with _AT_ONCE:
        try:
            return _hasher().verify(kept, _bytes(password))
        except VerifyMismatchError:
            return False


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY, parallelism=1)


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
