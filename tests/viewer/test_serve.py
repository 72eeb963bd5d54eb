"""`ct viewer serve` as a process: who is let in, how it ends, what keeps it from starting."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import zstandard

from control_tower.logs.json_text import dumps
from tests.agent_runs import sites
from tests.support.viewer_server import CT, served_viewer
from tests.viewer.house import trajectory_ids, upload
from tests.viewer.test_downloads import log_with

NO_USERS = "there are no users"


def _environment(folder: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "MONGOURI"}
    return {**inherited, "CONTROL_TOWER_DATA_DIR": str(folder / "data"), **more}


@contextmanager
def _serving(folder: Path, *words: str, **environment: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A viewer without login, and its process."""
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [CT, "viewer", "serve", "--port", "0", *words],
            env=_environment(folder, **environment),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout
    try:
        line = process.stdout.readline()
        assert line.startswith("http://"), line + (folder / "stderr").read_text()
        yield line.split()[0], process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _refused(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [CT, "viewer", "serve", *words],
        env=_environment(folder, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.slow
class TestStart:
    def test_on_ones_own_machine_nobody_logs_in(self, tmp_path: Path) -> None:
        with _serving(tmp_path) as (url, process):
            assert httpx.get(f"{url}/api/v1/whoami", timeout=60).json()["user_id"] == "local"
            assert (
                httpx.get(f"{url}/healthz", headers={"Host": "evil.example"}, timeout=60).status_code == 421
            )
            assert not list(tmp_path.rglob("token*"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0
        lines = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
        assert [line["status"] for line in lines] == [200, 421]

    def test_what_would_let_others_in_is_refused(self, tmp_path: Path) -> None:
        for words, environment, reason in [
            (["--host", "0.0.0.0"], {}, NO_USERS),
            (["--host", "::"], {}, NO_USERS),
            ([], {"CONTROL_TOWER_VIEWER_URL": "https://viewer.example"}, NO_USERS),
            ([], {"CONTROL_TOWER_API_AUTH_USERNAME": "ann"}, "or neither"),
            ([], {"CONTROL_TOWER_API_AUTH_PASSWORD": "hunter22"}, "or neither"),
            ([], {"CONTROL_TOWER_VIEWER_PUBLIC": "true"}, "CONTROL_TOWER_VIEWER_PUBLIC"),
        ]:
            code, said = _refused(tmp_path, *words, **environment)
            assert (code, reason in said, said.count("\n")) == (2, True, 1), said
            assert "hunter22" not in said

    def test_a_port_that_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            code, said = _refused(tmp_path, "--port", port)
        assert (code, f"port {port} of 127.0.0.1 is in use" in said) == (1, True)

    def test_with_a_user_everybody_logs_in(self, tmp_path: Path) -> None:
        with served_viewer(tmp_path) as viewer:
            assert httpx.get(f"{viewer.url}/api/v1/whoami", timeout=60).status_code == 401
            log = (tmp_path / "stderr").read_text()
        # The next start needs no names in the environment: there is a user now.
        with _serving(tmp_path) as (url, _):
            assert httpx.get(f"{url}/api/v1/whoami", timeout=60).status_code == 401
        assert "correct horse" not in log


@pytest.mark.slow
class TestWork:
    def test_it_ends_when_what_was_begun_is_done(self, tmp_path: Path) -> None:
        with _serving(tmp_path) as (url, process), httpx.Client(base_url=url, timeout=60) as client:
            asked = {"sha256": "0" * 64, "size": 1000, "filename": "x"}
            address = f"/api/v1/uploads/{client.post('/api/v1/uploads', json=asked).json()['upload_id']}"
            sent = threading.Event()

            def slowly() -> Generator[bytes]:
                yield b"x" * 500
                process.send_signal(signal.SIGTERM)
                sent.set()
                time.sleep(1)
                yield b"x" * 500

            answer = client.put(f"{address}/parts/1", content=slowly(), headers={"Content-Length": "1000"})
            assert answer.status_code == 204
            assert process.wait(40) == 0

    def test_others_are_answered_while_a_huge_sample_is_read_slowly(self, tmp_path: Path) -> None:
        """No request waits for another, while decompressing hundreds of MB takes seconds."""
        log = sites.log(tmp_path / "log.eval", [sites.sample("a", main=1.0)])
        numbers = random.Random(0)
        blocks = ("x" * 4000 + f"{numbers.getrandbits(64):x}" for _ in range(65_000))
        data = dumps({"id": "a", "epoch": 1, "text": "".join(blocks)})
        packed = zstandard.compress(data)
        huge = log_with(tmp_path / "huge.eval", sites.sample("a", main=1.0), 93, packed, plain=data)
        with _serving(tmp_path) as (url, process), httpx.Client(base_url=url, timeout=60) as client:
            run_id = upload(client, huge, sites.documents(log))["run_id"]
            (id,) = trajectory_ids(client, run_id)
            waits: list[float] = []
            done = threading.Event()

            def others() -> None:
                with httpx.Client(base_url=url, timeout=60) as other:
                    while not done.is_set():
                        began = time.perf_counter()
                        assert other.get("/healthz").status_code == 200
                        waits.append(time.perf_counter() - began)
                        time.sleep(0.01)

            watcher = threading.Thread(target=others)
            watcher.start()
            before = _memory(process.pid)
            length = 0
            with client.stream(
                "GET", f"/api/v1/trajectories/{id}/sample", headers={"Accept-Encoding": "identity"}
            ) as answer:
                for part in answer.iter_raw():
                    length += len(part)
            done.set()
            watcher.join()
            assert length == len(data)
            assert len(waits) > 3
            assert sorted(waits)[len(waits) // 2] < 0.5
            assert _memory(process.pid) - before < 100 * 1024**2


def _memory(pid: int) -> int:
    """The most memory a process has had, in bytes."""
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_a_list_in_process_starts_up_within_a_second(tmp_path: Path) -> None:
    """Neither Inspect, boto3, pymongo nor numpy is imported for it."""
    program = """
import asyncio, sys
from pathlib import Path
import httpx
from control_tower.agent_runs.site import SiteSettings, open_site
from control_tower.client.transport import AppTransport
from control_tower.viewer.app import create_app

async def main():
    folder = Path(sys.argv[1])
    async with open_site(SiteSettings("local", folder, str(folder / "blobs"))) as site:
        http = httpx.AsyncClient(transport=AppTransport(create_app(site)), base_url="http://localhost")
        async with http:
            print((await http.get("/api/v1/runs")).status_code)
    heavy = {"inspect_ai", "boto3", "botocore", "pymongo", "numpy", "uvicorn", "jinja2"}
    print(sorted(heavy & sys.modules.keys()))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["200", "[]"]
