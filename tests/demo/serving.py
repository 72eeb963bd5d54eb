"""A server of the demo, running on this machine in a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import control_tower.demo
from tests.support.ports import free_port

DEMO = Path(control_tower.demo.__file__).parent


class Running:
    """A running server.

    Args:
        folder: where it runs; files that are there stay.
        source: the folder of the demo that it is copied from.
        program: its file.
        log: the name of its log.
        settings: variables besides LISTEN.
    """

    def __init__(self, folder: Path, source: str, program: str, log: str, **settings: str) -> None:
        shutil.copytree(DEMO / source, folder, dirs_exist_ok=True)
        shutil.copy(DEMO / "services" / "serving.py", folder)
        self.port = free_port()
        self.folder = folder
        self._log = folder / "log" / log
        self._command = [sys.executable, program]
        self._environment = {**os.environ, "LISTEN": f"127.0.0.1:{self.port}", **settings}
        self._process = subprocess.Popen(self._command, cwd=folder, env=self._environment)
        deadline = time.monotonic() + 30
        while not (folder / "ready").is_file() and time.monotonic() < deadline:
            time.sleep(0.02)

    @property
    def log(self) -> list[dict[str, Any]]:
        """The entries of its log."""
        return [json.loads(line) for line in self._log.read_text(encoding="ascii").splitlines()]

    def check(self) -> None:
        """Ask it whether it works, as a health check does."""
        subprocess.run([*self._command, "--check"], cwd=self.folder, env=self._environment, check=True)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
