"""What every request passes: an id, a look at host, path and size, headers, a line in the log."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control_tower.viewer.errors import Refusal, answer
from control_tower.viewer.limits import largest_body
from control_tower.viewer.monitoring import Monitoring

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Authorization, Cookie, Accept-Encoding",
}
"""On answers that do not set them themselves."""

LONGEST_STALL = 300
"""Seconds that a body may pause, as while a client reads a huge sample for what it says of it."""

access_log = logging.getLogger("control_tower.viewer.access")
"""A record a request; `args` are its details."""

_SECRET_VALUES = re.compile(r"((?:^|&)(?:sig|token|code|user_code|device_code)=)[^&]*")


class Edge:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, monitoring: Monitoring, hosts: frozenset[str] | None, url: str | None
    ) -> None:
        """Wraps an application.

        Args:
            app: What answers.
            monitoring: Where requests are counted.
            hosts: Names it may be called by, without ports; None takes any.
            url: How its users reach it; the path in it may stand in front of every path.
        """
        self._app = app
        self._monitoring = monitoring
        self._hosts = hosts
        self._prefix = urlsplit(url or "").path.rstrip("/")
        self._https = (url or "").startswith("https:")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        path = re.sub("//+", "/", scope["path"])
        if self._prefix and (path + "/").startswith(self._prefix + "/"):
            path = path[len(self._prefix) :] or "/"
        state: dict[str, Any] = {"request_id": secrets.token_hex(8), "head": scope["method"] == "HEAD"}
        inner = {**scope, "path": path, "method": "GET" if state["head"] else scope["method"], "state": state}
        sender = _Sender(send, state["request_id"], head=state["head"], https=self._https)
        try:
            if refusal := self._refused(inner):
                await answer(refusal, state["request_id"])(inner, receive, sender)
            else:
                await self._app(inner, _limited(inner, receive), sender)
        except ClientDisconnect:
            pass  # Nobody is there to be answered, and nothing is wrong with the viewer.
        except Exception:
            if not sender.status:
                failure = Refusal(500, "internal_error", "the server failed; its log says why")
                await answer(failure, state["request_id"])(inner, receive, sender)
            raise
        finally:
            seconds = time.perf_counter() - began
            route = getattr(inner.get("route"), "path", "unknown")
            self._monitoring.add(scope["method"], route, sender.status, seconds)
            if access_log.isEnabledFor(logging.INFO):
                access_log.info("%(method)s %(path)s", _record(scope, sender, seconds, state))

    def _refused(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        if self._hosts is not None and _host(headers.get("host", "")) not in self._hosts:
            return Refusal(421, "wrong_host", "this viewer is not known by the name in the header Host")
        largest = largest_body(scope["method"], scope["path"])
        length = headers.get("content-length", "0")
        if largest is not None and length.isdecimal() and int(length) > largest:
            return _too_large(largest)
        return None


class _Sender:
    """Sends an answer with the headers that all have; of one to HEAD only those."""

    def __init__(self, send: Send, request_id: str, *, head: bool, https: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._head = head
        self._https = https
        self.status = 0
        self.length = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self._https:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        elif message["type"] == "http.response.body":
            if self._head:
                message = {**message, "body": b""}
            self.length += len(message.get("body", b""))
        await self._send(message)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, which no other can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _limited(scope: Scope, receive: Receive) -> Receive:
    """The body of a request, up to the size it may have, as long as it keeps coming."""
    largest = largest_body(scope["method"], scope["path"])
    length, more = 0, True

    async def receiving() -> Message:
        nonlocal length, more
        try:
            async with asyncio.timeout(LONGEST_STALL if more else None):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"nothing of the body arrived for {LONGEST_STALL} seconds") from None
        more = bool(message.get("more_body"))
        length += len(message.get("body", b""))
        if largest is not None and length > largest:
            raise HTTPException(413) from _too_large(largest)
        return message

    return receiving


def _too_large(largest: int) -> Refusal:
    return Refusal(413, "content_too_large", f"the body is larger than {largest} bytes")


def _record(scope: Scope, sender: _Sender, seconds: float, state: Mapping[str, Any]) -> dict[str, Any]:
    """A request for the log, without what is secret in its query."""
    query = scope["query_string"].decode("latin-1")
    return {
        "request_id": state["request_id"],
        "from": (scope.get("client") or (None,))[0],
        "user": state.get("user"),
        "method": scope["method"],
        "path": scope["path"],
        "query": _SECRET_VALUES.sub(r"\1***", query),
        "status": sender.status or None,
        "bytes": sender.length,
        "ms": round(seconds * 1000, 1),
    }


def _host(header: str) -> str:
    """The name in a Host header, without port, brackets and the dot at its end."""
    name = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return name.lower().removesuffix(".")
