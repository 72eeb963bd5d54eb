"""A viewer to speak to: the configured one over HTTP, else our own application over the local data folder."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast

import httpx

from control_tower.client.tokens import Credentials, credentials
from control_tower.errors import ExpectedError, OperationError, StateError, UsageError, ValidationError

T = TypeVar("T")
Content = bytes | Callable[[], AsyncIterator[bytes]]
"""A body; one that is streamed is made anew for each attempt."""

ATTEMPTS = 6
LONGEST_WAIT = 60.0
"""Seconds before another attempt, whatever the viewer asks for."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = 5
_TIMEOUT = httpx.Timeout(connect=10, read=300, write=60, pool=None)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HERE = ("127.0.0.1", 8642)
_IN_PROCESS = f"http://{_HERE[0]}:{_HERE[1]}"
"""Where `ct viewer serve` would show what the local data folder holds."""


class NotThere(StateError):
    """The viewer knows no such thing, or not the endpoint."""


@dataclass(frozen=True)
class Viewer:
    """An open connection. Paths are below the viewer's address; its token goes to this address only."""

    url: str
    """The address as users see it, without a slash at the end."""
    in_process: bool
    """Whether it is the local data folder, not a server."""
    http: httpx.AsyncClient
    token: str | None = field(default=None, repr=False)

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: Content | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
        accept: frozenset[int] = frozenset(),
    ) -> httpx.Response:
        """One call and its whole answer, repeated where that may help.

        Args:
            method: Of HTTP.
            path: Below the viewer's address, beginning with a slash.
            json: A body.
            content: A body as bytes.
            params: The query; None values are left out.
            headers: More of them.
            again: Whether repeating it does no harm.
            accept: Statuses that are no failure, besides those of success.

        Raises:
            NotThere: It was answered with 404.
            ValidationError: The viewer refuses what was sent.
            StateError: It refuses it as things stand: there is no valid token, or something was changed.
            OperationError: It cannot be reached, or fails.
        """
        send = _Attempts(self, ATTEMPTS if again else 1, whole=True)
        async with send(method, path, json, content, params, headers, accept) as answer:
            return answer

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
    ) -> AsyncGenerator[httpx.Response]:
        """A GET whose answer is read in pieces; only its beginning is repeated. Raises as `call`."""
        send = _Attempts(self, ATTEMPTS, whole=False)
        async with send("GET", path, None, None, params, headers, accept) as answer:
            yield answer

    async def send_outside(
        self, method: str, url: str, content: Content, headers: Mapping[str, str], seconds: float
    ) -> httpx.Response:
        """A call to an address that the viewer has given, without its token; any answer is returned.

        Raises:
            OperationError: It cannot be reached.
        """
        body = content() if callable(content) else content
        patience = httpx.Timeout(connect=10, read=seconds, write=60, pool=None)
        request = self.http.build_request(method, url, content=body, headers=dict(headers), timeout=patience)
        try:
            return await self.http.send(request, auth=_no_auth)
        except httpx.TransportError as error:
            raise unreachable(self, error) from error


def run(work: Coroutine[Any, Any, T]) -> T:
    """Waits for work with a viewer, also where an event loop runs already, as in a notebook."""
    if not _in_a_loop():
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, work).result()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def all_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Does several things at once; the first failure ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


@asynccontextmanager
async def open_viewer(url: str | None = None) -> AsyncGenerator[Viewer]:
    """Opens the viewer.

    Args:
        url: The address of a viewer, for what was named by its URL; None is the configured one, and where
            none is configured the local data folder.

    Raises:
        UsageError: The configuration is wrong: no address of a viewer, or a token without an address.
        StateError: The local data folder was written by a newer version.
    """
    found = credentials(url)
    if found is None or (url is not None and _is_ours(url) and not served()):
        async with _in_process() as viewer:
            yield viewer
        return
    async with connect(found) as viewer:
        yield viewer


@asynccontextmanager
async def connect(found: Credentials) -> AsyncGenerator[Viewer]:
    """Speaks to a viewer over HTTP."""
    direct = {f"all://{f'[{host}]' if ':' in host else host}": None for host in _LOOPBACK}
    async with httpx.AsyncClient(base_url=found.url, timeout=_TIMEOUT, mounts=direct) as http:
        yield Viewer(found.url, in_process=False, http=http, token=found.token)


def served() -> bool:
    """Whether a server listens where `ct viewer serve` does unless told otherwise."""
    try:
        with socket.create_connection(_HERE, timeout=1):
            return True
    except OSError:
        return False


def _is_ours(url: str) -> bool:
    """Whether an address is one that runs of the local data folder were given."""
    parts = httpx.URL(url)
    return parts.host in _LOOPBACK and parts.port == _HERE[1]


@asynccontextmanager
async def _in_process() -> AsyncGenerator[Viewer]:
    from control_tower.agent_runs.site import SiteSettings, open_site
    from control_tower.client.transport import AppTransport
    from control_tower.viewer.app import create_app

    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(SiteSettings.local()))
        app = create_app(site)
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = AppTransport(cast(Any, app))
        http = httpx.AsyncClient(transport=transport, base_url=_IN_PROCESS, timeout=None)
        await stack.enter_async_context(http)
        yield Viewer(_IN_PROCESS, in_process=True, http=http)


class _Attempts:
    """One call, made until it is answered in a way that another attempt would not better."""

    def __init__(self, viewer: Viewer, attempts: int, *, whole: bool) -> None:
        self._viewer = viewer
        self._whole = whole
        self._attempts = 1 if viewer.in_process else attempts

    @asynccontextmanager
    async def __call__(
        self,
        method: str,
        path: str,
        json: Any,
        content: Content | None,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        accept: frozenset[int],
    ) -> AsyncGenerator[httpx.Response]:
        for left in reversed(range(self._attempts)):
            body = content() if callable(content) else content
            given = {name: value for name, value in (params or {}).items() if value is not None}
            request = self._viewer.http.build_request(
                method, path, json=json, content=body, params=given or None, headers=dict(headers or {})
            )
            try:
                answer = await self._follow(request)
                well = answer.is_success or answer.status_code in accept
                if self._whole or not well:
                    await answer.aread()
            except httpx.TransportError as error:
                if not left or isinstance(error, httpx.UnsupportedProtocol):
                    raise unreachable(self._viewer, error) from error
                await asyncio.sleep(_pause(self._attempts - left))
                continue
            if well:
                try:
                    yield answer
                finally:
                    await answer.aclose()
                return
            if not left or answer.status_code not in _AGAIN:
                raise refusal(self._viewer, answer)
            await asyncio.sleep(_asked_for(answer) or _pause(self._attempts - left))

    async def _follow(self, request: httpx.Request) -> httpx.Response:
        """The answer behind all redirects; the token is for the viewer itself only."""
        home = _origin(request.url)
        for _ in range(_REDIRECTS):
            request.headers.pop("Authorization", None)
            if self._viewer.token and _origin(request.url) == home:
                request.headers["Authorization"] = f"Bearer {self._viewer.token}"
            answer = await self._viewer.http.send(request, stream=True, auth=_no_auth)
            if answer.next_request is None:
                return answer
            await answer.aclose()
            target = answer.next_request.url
            if request.method not in ("GET", "HEAD") and _origin(target) != home:
                # What is sent, a password or a log, is for this viewer only.
                there = target.copy_with(path="/", query=None, fragment=None)
                raise OperationError(f"{self._viewer.url}: the viewer is elsewhere: name it by {there}")
            request = answer.next_request
        raise OperationError(f"{self._viewer.url}: redirects without end")


def unreachable(viewer: Viewer, error: httpx.TransportError) -> ExpectedError:
    """What keeps a viewer from being reached."""
    if isinstance(error, httpx.UnsupportedProtocol):
        return UsageError(f"{viewer.url}: is no address of a viewer; write https://host")
    reason = str(error) or type(error).__name__
    return OperationError(f"{viewer.url}: the viewer cannot be reached: {reason}")


def refusal(viewer: Viewer, answer: httpx.Response) -> ExpectedError:
    """What a viewer said against a call, as an error with the way out."""
    status, reason = answer.status_code, _reason(answer)
    where = "" if viewer.in_process else f"{viewer.url}: "
    if status == 401:
        why = "the token is not valid (any more)" if viewer.token else "there is no token for this viewer"
        return StateError(
            f"{where}{why}; log in with `ct login --url {viewer.url}`, or set CONTROL_TOWER_API_TOKEN"
        )
    if status == 403:
        return StateError(f"{where}{reason}; `ct whoami` says what your token may do")
    if status in (404, 410):
        return NotThere(where + reason)
    if status in (400, 413, 422):
        return ValidationError(where + reason)
    if status in (409, 412):
        return StateError(where + reason)
    return OperationError(f"{where}the viewer failed with {status}: {reason}")


def _reason(answer: httpx.Response) -> str:
    try:
        told = answer.json()
    except ValueError:
        told = None
    if isinstance(told, dict):
        found = cast("dict[str, Any]", told)
        if isinstance(text := found.get("error") or found.get("detail"), str):
            return text
    return answer.reason_phrase or str(answer.status_code)


def _no_auth(request: httpx.Request) -> httpx.Request:
    return request


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _pause(attempt: int) -> float:
    return min(0.25 * 2**attempt, LONGEST_WAIT) * random.uniform(0.5, 1)


def _asked_for(answer: httpx.Response) -> float | None:
    """Seconds that `Retry-After` asks to wait, written as a number or a date."""
    text = answer.headers.get("Retry-After", "").strip()
    if not text:
        return None
    try:
        seconds = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0), LONGEST_WAIT) + random.uniform(0, 0.25)
