"""Uploads whose client or server is killed at any moment, and several at once: one run, whole, or none."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from control_tower.logs.json_text import JsonObject
from tests.agent_runs.sites import header, sample
from tests.client.serving import Server, serving
from tests.client.using import User
from tests.logs.log_making import write_log
from tests.support.viewer_server import CT

KILLS = 8
SAMPLES = 60
PARTS = 3


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    with serving(tmp_path / "server") as found:
        yield found


@pytest.fixture
def reader(user: User, server: Server) -> User:
    """Looks at the runs of the server."""
    return replace(user, environment={**user.environment, "CONTROL_TOWER_API_BASE_URL": server.url})


def big_log(path: Path, seed: int) -> Path:
    """A log of several parts, with enough samples for several processes."""
    noise = random.Random(seed)
    samples: list[JsonObject] = []
    for number in range(SAMPLES):
        made = sample(f"s{number}", main=1.0, scores=[10, 20])
        samples.append({**made, "attachments": {"noise": noise.randbytes(700_000).hex()}})
    return write_log(path, header(), samples)


def make(log: Path, server: Server) -> subprocess.Popen[str]:
    """`ct runs make` of its own process."""
    return subprocess.Popen(
        [CT, "runs", "make", str(log), "--format", "json"],
        env={**os.environ, "CONTROL_TOWER_API_BASE_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    return json.loads(out)


def visible(reader: User) -> list[JsonObject]:
    """The runs there are, each of them whole."""
    runs = reader.done("runs", "list", "--all", "--format", "json").json
    for run in runs:
        assert run["trajectory_count"] == SAMPLES
        folder = reader.folder / "documents"
        reader.done("runs", "download-traj", run["run_id"], "-n", "2", "--overwrite", "-o", folder)
    return runs


def only_run(reader: User, log: Path, run_id: str) -> None:
    """Checks that there is this run only, with the log as it is here."""
    [run] = visible(reader)
    assert run["run_id"] == run_id
    path = reader.done("runs", "download-eval", run_id).out.strip()
    assert (reader.folder / path).read_bytes() == log.read_bytes()


@pytest.mark.slow
def test_a_client_killed_at_any_moment_leaves_one_run_or_none(
    server: Server, reader: User, tmp_path: Path
) -> None:
    with serving(tmp_path / "other") as other:
        began = time.monotonic()
        finished(make(big_log(tmp_path / "other.eval", 1), other))
        whole = time.monotonic() - began
    log = big_log(tmp_path / "log.eval", 2)
    chance = random.Random(3)
    for number in range(KILLS):
        process = make(log, server)
        time.sleep(whole * (number + chance.random()) / KILLS)
        process.kill()
        process.communicate()
        assert len(visible(reader)) <= 1
    only_run(reader, log, finished(make(log, server))["run_id"])
    arrived = [asked for asked in server.requests() if asked["method"] == "PUT" and asked["status"] == 204]
    assert PARTS <= len(arrived) < PARTS + 3 * KILLS, "parts that have arrived are not sent again"


@pytest.mark.slow
def test_a_server_killed_at_any_moment_leaves_one_run_or_none(
    server: Server, reader: User, tmp_path: Path
) -> None:
    log = big_log(tmp_path / "log.eval", 4)
    chance = random.Random(5)
    for _ in range(KILLS // 2):
        process = make(log, server)
        time.sleep(1 + chance.random() * 2)
        server.stop(signal.SIGKILL)
        server.start()
        process.communicate(timeout=250)
        assert len(visible(reader)) <= 1
    only_run(reader, log, finished(make(log, server))["run_id"])


@pytest.mark.slow
def test_several_at_once_make_one_run(server: Server, reader: User, tmp_path: Path) -> None:
    log = big_log(tmp_path / "log.eval", 6)
    made = [finished(process) for process in [make(log, server) for _ in range(3)]]
    assert len({each["run_id"] for each in made}) == 1
    assert sorted(each["existing"] for each in made) == [False, True, True]
    only_run(reader, log, made[0]["run_id"])


def test_two_at_once_in_process_make_one_run(user: User, log: Path) -> None:
    found: list[Any] = []

    def run() -> None:
        done = subprocess.run(
            [CT, "runs", "make", str(log), "--format", "json"],
            env={**os.environ, **user.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        found.append((done.returncode, done.stderr, done.stdout))

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [code for code, _, _ in found] == [0, 0], found
    assert len({json.loads(out)["run_id"] for _, _, out in found}) == 1
    assert len(user.done("runs", "list", "--format", "json").json) == 1
