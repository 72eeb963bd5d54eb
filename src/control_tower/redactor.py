"""Masks secrets in text, also where they were encoded on the way."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

PASSWORD = r"(?P<user>(?<=://)[^\s/:@]*:)(?P<password>[^\s/@]+)(?=@)"
"""A password in an address."""

_MASK = "***"
_PATTERNS = (
    PASSWORD,
    r"(?<![A-Za-z0-9_-])(?:sk-|gh[opsu]_|github_pat_|xox[abp]-|hf_|AKIA|AIza)[A-Za-z0-9_-]{16,}",
)
"""What looks like a secret whatever its value: passwords in addresses, and tokens with a known beginning."""


class Redactor:
    """Replaces secrets by `***`.

    Args:
        values: The secrets. Each line of a longer text is one, too.
        shortest: Characters of those that are masked; shorter ones occur by chance.
    """

    def __init__(self, values: Iterable[str] = (), shortest: int = 8) -> None:
        parts = {part.strip() for value in values for part in (value, *value.splitlines())}
        forms = {form for part in parts if len(part) >= shortest for form in _forms(part)}
        # The longest first, so that no part of a secret stays beside a shorter one within it.
        exact = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
        self._forms = [form.encode("utf-8", "surrogateescape") for form in forms]
        self._exact = re.compile("|".join(exact).encode("utf-8", "surrogateescape"))
        self._pattern = re.compile("|".join([*exact, *_PATTERNS]))

    def __bool__(self) -> bool:
        """Whether there is any secret."""
        return bool(self._forms)

    def text(self, text: str) -> str:
        """The text without secrets, and without what looks like one."""
        return self._pattern.sub(lambda match: (match["user"] or "") + _MASK, text)

    def data(self, data: bytes) -> bytes:
        """Data without these secrets and otherwise unchanged; the same object where it has none."""
        if not any(form in data for form in self._forms):
            return data
        return self._exact.sub(_MASK.encode(), data)


def _forms(value: str) -> Iterable[str]:
    data = value.encode("utf-8", "surrogateescape")
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for safe in ("", "/"):
        yield quote(data, safe=safe)
        yield quote_plus(data, safe=safe)
    yield data.hex()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            # Within a longer text the first and last characters depend on its neighbours.
            whole = encode(b"\0" * before + data).decode().rstrip("=")
            tail = 1 if (before + len(data)) % 3 else 0
            yield whole[(before * 8 + 5) // 6 : len(whole) - tail]
        yield encode(data).decode().rstrip("=")
