"""Objects over loopback as S3 serves them: HEAD and GET with ranges, conditions and versions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Objects:
    """Versions of objects by `<bucket>/<key>`, oldest first; buckets named `versions...` keep them."""

    address: str = ""
    kept: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])

    def put(self, place: str, data: bytes) -> None:
        """Stores an object, or a newer version of it."""
        older = self.kept.get(place, []) if place.startswith("versions") else []
        self.kept[place] = [*older, data]

    def delete(self, place: str) -> None:
        """Removes an object."""
        del self.kept[place]


@contextmanager
def serving() -> Iterator[Objects]:
    """A server on a free port."""
    objects = Objects()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            url = urlsplit(self.path)
            place = unquote(url.path).lstrip("/")
            versions = objects.kept.get(place)
            number = int(parse_qs(url.query).get("versionId", [len(versions or [])])[0])
            if versions is None or not 1 <= number <= len(versions):
                self.send(404, *_error("NoSuchKey"))
                return
            data = versions[number - 1]
            tag = f'"{hashlib.md5(data).hexdigest()}"'
            if self.headers.get("If-Match", tag) != tag:
                self.send(412, *_error("PreconditionFailed"))
                return
            headers = {"ETag": tag}
            if place.startswith("versions"):
                headers["x-amz-version-id"] = str(number)
            status, part = 200, data
            if asked := self.headers.get("Range"):
                first, last = map(int, re.findall(r"\d+", asked))
                status, part = 206, data[first : last + 1]
                headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self.send(status, part, headers)

        def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        objects.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield objects
        finally:
            server.shutdown()
            thread.join()


def _error(code: str) -> tuple[bytes, dict[str, str]]:
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return body.encode(), {"Content-Type": "application/xml"}
