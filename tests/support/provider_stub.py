"""A loopback server that speaks the OpenAI and Anthropic APIs: it answers what a test scripted.

It is as strict as the real servers about what a conversation may look like: a request that they would
refuse is answered with 400 and kept in `faults`.
"""

import itertools
import json
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.anthropic_stub import Messages
from tests.support.openai_stub import ChatCompletions, Responses
from tests.support.provider_records import Answer, Api, Failure, Json, Request, Step

OPENAI_KEY = "sk-proj-stub-0123456789abcdef-openai"
ANTHROPIC_KEY = "sk-ant-api03-stub-0123456789abcdef"


class ProviderStub:
    """The server; `script` says what each model answers."""

    def __init__(self) -> None:
        self._apis: dict[str, Api] = {
            "/v1/responses": Responses(),
            "/v1/chat/completions": ChatCompletions(),
            "/v1/messages": Messages(),
        }
        self._steps: dict[str, Iterator[Step]] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.requests: list[Request] = []
        """Every request for an answer, in order."""
        self.faults: list[str] = []
        """What real servers would have refused, and requests that no script was left for."""
        self.side_requests: list[str] = []
        """Paths of what providers ask beside answers."""
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def address(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self) -> dict[str, str]:
        """The variables that lead the providers here, with keys that must not be seen anywhere else."""
        return {
            "OPENAI_BASE_URL": f"{self.address}/v1",
            "OPENAI_API_KEY": OPENAI_KEY,
            "ANTHROPIC_BASE_URL": self.address,
            "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
        }

    def script(self, model: str, steps: Iterable[Step]) -> None:
        """Answer the requests for a model, one after the other, with these steps."""
        self._steps[model.rpartition("/")[2]] = iter(steps)

    def asked(self, model: str) -> list[Request]:
        """The requests for a model."""
        return [request for request in self.requests if request.model == model.rpartition("/")[2]]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, body: Json, headers: Mapping[str, str]) -> "Reply":
        """Decide the answer to a request."""
        api = self._apis.get(path)
        if api is None or isinstance(body.get("input"), str):
            self.side_requests.append(path)
            return _side_reply(path, body)
        request = Request(api, body, headers)
        with self._lock:
            self.requests.append(request)
            step = self._step(request)
            number = next(self._numbers)
        if isinstance(step, Failure):
            return Reply(step.status, api.error(step), retry_after=step.retry_after, in_stream=step.in_stream)
        self.closing.wait(step.delay)
        whole = api.answer(request, step, number)
        return Reply(200, whole, events=list(api.stream(whole)) if request.streamed else None)

    def _step(self, request: Request) -> Answer | Failure:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        if not (OPENAI_KEY in key or ANTHROPIC_KEY in key):
            return Failure(401, f"Incorrect API key provided: {key}", code="invalid_api_key")
        if complaint := _bad_unicode(request.body) or _complaint(request):
            self.faults.append(complaint)
            return Failure(400, complaint)
        steps = self._steps.get(request.model.rpartition("/")[2])
        step = next(steps, None) if steps else None
        if step is None:
            self.faults.append(f"no answer is scripted for {request.model}")
            return Failure(400, self.faults[-1])
        return step(request) if callable(step) else step


@dataclass(frozen=True)
class Reply:
    """What goes over the wire."""

    status: int
    body: Json
    events: list[tuple[str | None, Json]] | None = None
    retry_after: float | None = None
    in_stream: bool = False


def _side_reply(path: str, body: Json) -> Reply:
    """Answers what providers ask on their own: Inspect's test for reasoning summaries, token counts."""
    if path == "/v1/messages/count_tokens":
        return Reply(200, {"input_tokens": 7})
    if path == "/v1/responses":
        api = Responses()
        return Reply(200, api.answer(Request(api, body, {}), Answer("hello, world"), 0))
    return Reply(404, {"error": {"message": f"no {path} here", "type": "not_found_error"}})


def _complaint(request: Request) -> str | None:
    try:
        return request.api.complaint(request.body)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        return f"not a request as the API knows it: {error!r}"


def _bad_unicode(body: Json) -> str | None:
    if re.search("[\ud800-\udfff]", json.dumps(body, ensure_ascii=False)):
        return "The request body is not valid JSON: no low surrogate in string"
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(stub: ProviderStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = stub.reply(self.path.partition("?")[0], body, headers)
            try:
                if reply.in_stream:
                    self._send_events([("error", reply.body)])
                elif reply.events is not None:
                    self._send_events(reply.events)
                else:
                    self._send_json(reply)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _send_json(self, reply: Reply) -> None:
            data = json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            if reply.retry_after is not None:
                self.send_header("retry-after", str(reply.retry_after))
            self.end_headers()
            self.wfile.write(data)

        def _send_events(self, events: Sequence[tuple[str | None, Json]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for name, data in events:
                text = (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"
                self._chunk(text)
            if all(name is None for name, _ in events):
                self._chunk("data: [DONE]\n\n")
            self._chunk("")

        def _chunk(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            return None

    return Handler
