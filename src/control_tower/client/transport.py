"""An ASGI application as an httpx transport: bodies are streamed in both directions, never held whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, cast

import httpx

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

_END: Message = {"type": "end"}


class AppTransport(httpx.AsyncBaseTransport):
    """Hands requests to an application of the same process.

    What the application raises is raised to the caller.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answers as soon as the application has begun to; the rest of the body comes as it is read."""
        exchange = _Exchange(request)
        exchange.task = asyncio.create_task(exchange.run(self._app))
        try:
            start = await exchange.next()
            if start is _END:
                raise RuntimeError(f"the application did not answer {request.method} {request.url.path}")
        except BaseException:
            await exchange.aclose()
            raise
        return httpx.Response(start["status"], headers=start["headers"], stream=exchange)


class _Exchange(httpx.AsyncByteStream):
    """One request, and the body of its response."""

    def __init__(self, request: httpx.Request) -> None:
        self.request = request
        self.task: asyncio.Task[None] | None = None
        self._sent: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self._body = aiter(cast("httpx.AsyncByteStream", request.stream))
        self._gone = asyncio.Event()
        self._read = self._whole = False

    async def run(self, app: Application) -> None:
        """The application's side; always ends with `_END` unless nobody listens any more."""
        try:
            await app(self._scope(), self._receive, self._send)
        finally:
            if not self._gone.is_set():
                await self._sent.put(_END)

    async def next(self) -> Message:
        """What the application sent next.

        Raises:
            Exception: What the application raised.
        """
        message = await self._sent.get()
        if message is _END and self.task:
            await self.task
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.next()) is not _END:
            if part := message.get("body"):
                yield part

    async def aclose(self) -> None:
        """Lets an application that has answered whole finish; any other one is told that nobody listens."""
        self._gone.set()
        task = self.task
        if task is None:
            return
        while not self._sent.empty():
            self._sent.get_nowait()
        if not self._whole:
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # raised to whoever read the body; nobody else is to be told

    def _scope(self) -> MutableMapping[str, Any]:
        url = self.request.url
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": self.request.method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in self.request.headers.raw],
            "client": ("127.0.0.1", 0),
            "server": (url.host, url.port or 80),
        }

    async def _receive(self) -> Message:
        part = await anext(self._body, None)
        if part is not None:
            return {"type": "http.request", "body": part, "more_body": True}
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._whole = True
        if not self._gone.is_set():
            await self._sent.put(message)
