"""Ports for servers that are told theirs before they start."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

_FIRST, _END = 12_000, 32_000
"""Of those that the system gives to nobody who asks for just any port."""


def free_port() -> int:
    """A port of loopback that nobody listens at; one chosen by chance is hardly another test's soon after."""
    while True:
        port = _FIRST + secrets.randbelow(_END - _FIRST)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
