"""Addresses of viewers: which are of the same one, and which are safe to send a token to."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from control_tower import config
from control_tower.errors import UsageError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


def base_of(url: str) -> str:
    """A viewer's address as we write it: no user, no slash at its end, host in small letters.

    Raises:
        UsageError: It is not an address of http or https.
    """
    scheme, host, port, path = _parts(url)
    shown = f"[{host}]" if ":" in host else host
    return urlunsplit(
        (scheme, shown if port == _PORTS[scheme] else f"{shown}:{port}", path.rstrip("/"), "", "")
    )


def origin(url: str) -> str:
    """Which viewer an address is of: scheme, host and port, the names of this machine as one.

    Raises:
        UsageError: It is not an address of http or https.
    """
    scheme, host, port, _ = _parts(url)
    return f"{scheme}://{'localhost' if host in _LOOPBACK else host}:{port}"


def check_secure(url: str, *, allowed: bool) -> None:
    """Refuses to send secrets to another machine without TLS.

    Raises:
        UsageError: That would happen, and is not allowed.
    """
    scheme, host, _, _ = _parts(url)
    if scheme == "http" and host not in _LOOPBACK and not allowed:
        raise UsageError(
            f"{base_of(url)}: a token sent without TLS can be read on the way: use https, or allow it "
            "with `ct login --insecure`"
        )


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if not host or parts.scheme not in _PORTS or not host.isascii() or not url.isprintable():
        raise UsageError(f"{config.redact(url)!r} is no address of a viewer: write https://host")
    return parts.scheme, host, port or _PORTS[parts.scheme], parts.path
