"""`ct viewer serve` without users, as its own process, that can be killed and started again."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.viewer_server import CT


class Server:
    """A server on a port of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        with (self.folder / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                [CT, "viewer", "serve", "--port", str(self.port), "--data", str(self.folder / "data")],
                env={**os.environ, "CONTROL_TOWER_CONFIG_DIR": str(self.folder / "config")},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert re.search(r"http://\S+", line), (self.folder / "stderr").read_text()

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        """Ends it."""
        if self._process:
            self._process.send_signal(kind)
            self._process.wait(40)
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None

    def requests(self) -> list[dict[str, Any]]:
        """What it was asked, in order."""
        lines = (self.folder / "stderr").read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in said if "method" in line]


@contextmanager
def serving(folder: Path) -> Generator[Server]:
    """A server that runs, and is ended afterwards."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
