"""A viewer that answers what a test says, and remembers what it was asked."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def token(self) -> str | None:
        """What it was authorised with."""
        return self.headers.get("Authorization")


@dataclass(frozen=True)
class Answer:
    """What is answered; None as body drops the connection without a word."""

    status: int = 200
    body: bytes | None = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), headers)


@dataclass
class Stub:
    """The server."""

    url: str
    asked: list[Asked] = field(default_factory=list[Asked])


@contextmanager
def stub(answer: Callable[[Asked], Answer]) -> Generator[Stub]:
    """Starts it on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            asked = Asked(self.command, self.path, dict(self.headers), self._body())
            found.asked.append(asked)
            told = answer(asked)
            if told.body is None:
                self.close_connection = True
                return
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in told.headers:
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)
            self.close_connection = "Content-Length" in told.headers

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while length := int(self.rfile.readline(), 16):
                    body += self.rfile.read(length)
                    self.rfile.readline()
                self.rfile.readline()
                return body
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Stub(f"http://127.0.0.1:{server.server_port}")
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
