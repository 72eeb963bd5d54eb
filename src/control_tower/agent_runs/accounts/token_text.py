"""How a token is written: `ct_<public id>_<secret><checksum>`, so that a typo is seen without asking."""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib

_ALPHABET = string.ascii_letters + string.digits
_ID = 10
_SECRET = 43
"""Characters; 256 random bits."""
_CHECKSUM = 6


def new_token() -> tuple[str, str]:
    """A token that nobody has yet: its public id, and its text."""
    public_id = _random(_ID)
    body = f"ct_{public_id}_{_random(_SECRET)}"
    return public_id, body + _checksum(body)


def public_id_of(text: str) -> str | None:
    """The public id in a token's text; None when this was never a token."""
    body, checksum = text[:-_CHECKSUM], text[-_CHECKSUM:]
    parts = body.split("_")
    if (
        [len(part) for part in parts] != [2, _ID, _SECRET]
        or parts[0] != "ct"
        or not text.isascii()
        or _checksum(body) != checksum
    ):
        return None
    return parts[1]


def hash_of(text: str) -> str:
    """What is kept of a secret: it is random, so that a fast hash is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode("utf-8", "replace"))
    letters = ""
    for _ in range(_CHECKSUM):
        number, index = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[index]
    return letters
