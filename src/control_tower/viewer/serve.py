"""Running the application as a server: in which mode, on which address, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from control_tower import config
from control_tower.agent_runs.accounts.login import NAME, PASSWORD, add_first_admin
from control_tower.agent_runs.accounts.users import all_users
from control_tower.agent_runs.site import Site, SiteSettings, open_site
from control_tower.errors import OperationError, UsageError
from control_tower.viewer.app import create_app, load
from control_tower.viewer.edge import access_log, is_loopback

STOPS_WITHIN = 30
"""Seconds that requests have to end when the server is told to stop."""

LONGEST_HEADERS = 32 * 1024

_PUBLIC = "CONTROL_TOWER_VIEWER_PUBLIC"


async def serve(host: str, port: int, data: Path | None, announce: Callable[[str], None]) -> None:
    """Serves until the process is told to stop, then ends requests within `STOPS_WITHIN`.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        data: Folder of runs and logs; None is the configured one.
        announce: Is told, in a line, where the viewer is and who may use it.

    Raises:
        UsageError: The settings contradict each other, or would let anybody in.
        StateError: The store was written by a newer version.
        OperationError: The port is taken, or the store cannot be reached.
    """
    if os.environ.get(_PUBLIC):
        raise UsageError(f"{_PUBLIC} is set, but reading without login is not available; unset it")
    async with open_site(_settings(data)) as found:
        site = await _with_mode(found, host)
        with _listening(host, port) as listener:
            _log_to_stderr()
            app = load(create_app(site))
            watching = asyncio.create_task(app.state.monitoring.watch())
            behind_proxy = site.settings.public_url is not None
            server = _Server(
                uvicorn.Config(
                    app,
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    server_header=False,
                    proxy_headers=behind_proxy,
                    h11_max_incomplete_event_size=LONGEST_HEADERS,
                    timeout_graceful_shutdown=STOPS_WITHIN,
                )
            )
            own = f"http://{_named(host)}:{listener.getsockname()[1]}"
            who = "nobody has to log in" if site.settings.mode == "local" else "users log in with `ct login`"
            announce(f"{site.settings.public_url or own} ({who}); stop it with Ctrl-C")
            try:
                await server.serve(sockets=[listener])
            finally:
                watching.cancel()


class _Server(uvicorn.Server):
    """Ends with the function that runs it, not with a signal, so that the store is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)


def _settings(data: Path | None) -> SiteSettings:
    found = SiteSettings.from_environment("local")
    if data is None:
        return found
    return replace(found, data=data, blobs=config.get("viewer_blobs", str(data / "blobs")))


async def _with_mode(site: Site, host: str) -> Site:
    """The site with the mode that its users and addresses ask for; what is in doubt is refused."""
    await add_first_admin(site.store, site.now())
    if await all_users(site.store):
        return replace(site, settings=replace(site.settings, mode="private"))
    way_out = f"add a user with `ct viewer user add`, or set {NAME} and {PASSWORD}"
    if not is_loopback(host):
        raise UsageError(f"--host {host} lets other machines in, and there are no users: {way_out}")
    url = site.settings.public_url
    if url and not is_loopback(urlsplit(url).hostname or ""):
        raise UsageError(f"the viewer is to be reached at {url}, and there are no users: {way_out}")
    return site


@contextlib.contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise OperationError(f"port {port} of {host} is in use; choose another with --port") from None
        raise OperationError(f"cannot listen on {host}, port {port}: {error}") from None
    with listener:
        yield listener


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    for logger in (logging.getLogger("uvicorn"), logging.getLogger("control_tower"), access_log):
        logger.setLevel(logging.INFO if logger is access_log else logging.WARNING)
        logger.propagate = False
        logger.handlers = [handler]


class _Lines(logging.Formatter):
    """Each record as one JSON object on a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": time, "level": record.levelname.lower()}
        if record.name == access_log.name and isinstance(record.args, dict):
            return json.dumps({**told, **record.args})
        told["message"] = config.redact(record.getMessage())
        if record.exc_info:
            told["exception"] = config.redact(self.formatException(record.exc_info))
        return json.dumps(told)
