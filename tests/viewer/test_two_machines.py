"""A team's viewer on MongoDB and S3, used from another machine: one that can reach nothing but the viewer."""

import json
import os
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymongo
import pytest

from tests.agent_runs import sites
from tests.support import mongod as databases
from tests.support.s3_server import S3Server
from tests.support.viewer_server import ADMIN, CT, PASSWORD, ServedViewer, served_viewer

pytestmark = pytest.mark.slow

_SERVERS_ONLY = ("MONGOURI", "AWS_", "CONTROL_TOWER_API_")


@dataclass(frozen=True)
class Machine:
    """A machine in a network namespace, with a user's folders on it."""

    name: str
    folder: Path

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Starts `ct` there."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(_SERVERS_ONLY)}
        for kind in ("DATA", "CONFIG", "CACHE"):
            own[f"CONTROL_TOWER_{kind}_DIR"] = str(self.folder / kind.lower())
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, CT, *words],
            cwd=self.folder,
            env={**own, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ct(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """Runs `ct` there: exit code, stdout, stderr."""
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


@contextmanager
def _machine(folder: Path) -> Generator[tuple[Machine, str]]:
    """A second machine, wired to this one; and this one's address on the wire."""
    name, network = f"ct{os.getpid()}", f"10.{os.getpid() % 200 + 20}.77"
    steps = (
        f"netns add {name}",
        f"link add {name}a type veth peer name {name}b netns {name}",
        f"addr add {network}.1/30 dev {name}a",
        f"link set {name}a up",
        f"-n {name} addr add {network}.2/30 dev {name}b",
        f"-n {name} link set {name}b up",
        f"-n {name} link set lo up",
    )
    try:
        for step in steps:
            subprocess.run(["ip", *step.split()], check=True, capture_output=True, text=True)
        yield Machine(name, folder), f"{network}.1"
    finally:
        # The wire goes with the namespace.
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def mongo(tmp_path: Path) -> Iterator[databases.Mongod]:
    with databases.running(tmp_path / "mongod") as server:
        yield server


def test_a_team_uses_a_viewer_over_the_network(
    tmp_path: Path, mongo: databases.Mongod, s3_server: S3Server
) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    storage: Mapping[str, str] = {
        **s3_server.environment,
        "MONGOURI": mongo.uri("runs"),
        "CONTROL_TOWER_VIEWER_BLOBS": "s3://plain/team",
    }
    log = sites.log(tmp_path / "log.eval")
    with (
        _machine(tmp_path) as (machine, address),
        served_viewer(tmp_path / "server", host=address, environment=storage) as viewer,
    ):
        code, _, said = machine.ct("login", viewer.url)
        assert (code, "without TLS" in said) == (2, True)
        _log_in_by_device(machine, viewer)
        tokens = tmp_path / "config" / "tokens.json"
        assert tokens.stat().st_mode & 0o777 == 0o600
        token = next(iter(json.loads(tokens.read_text())["hosts"].values()))["token"]

        for _ in range(2):
            code, _, said = machine.ct("runs", "make", str(log), "--tag", "team")
            assert code == 0, said
        code, out, said = machine.ct("runs", "list", "--tag", "team", "--format", "json")
        assert code == 0, said
        (run,) = json.loads(out)
        assert run["created_by"] == ADMIN
        code, out, said = machine.ct("runs", "download-eval", run["run_id"])
        assert code == 0, said
        assert (tmp_path / "data" / "eval-logs" / f"{run['run_id']}.eval").read_bytes() == log.read_bytes()

        _reads_but_cannot_write(machine, viewer, log)

        viewer.manage("token", "revoke", token.split("_")[1])
        code, _, said = machine.ct("runs", "list")
        assert (code, "the token is not valid" in said) == (1, True)
        _nowhere_in_plain(token, mongo, viewer)


def _log_in_by_device(machine: Machine, viewer: ServedViewer) -> None:
    process = machine.start("login", viewer.url, "--insecure", "--description", "laptop")
    assert process.stderr
    line = process.stderr.readline()
    assert line.startswith(f"Open {viewer.url}/device in any browser"), line
    viewer.decide(line.split()[-1])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, ""), err
    assert f"logged in to {viewer.url} as {ADMIN}" in err


def _reads_but_cannot_write(machine: Machine, viewer: ServedViewer, log: Path) -> None:
    viewer.manage("user", "add", "eve", "--role", "reader", password=PASSWORD)
    reader = {
        "CONTROL_TOWER_API_BASE_URL": viewer.url,
        "CONTROL_TOWER_API_TOKEN": viewer.manage("token", "create", "eve", "--description", "reading"),
    }
    code, out, said = machine.ct("runs", "list", "--format", "json", **reader)
    assert (code, len(json.loads(out))) == (0, 1), said
    code, _, said = machine.ct("runs", "make", str(log), **reader)
    assert (code, "runs:write" in said) == (1, True), said


def _nowhere_in_plain(token: str, mongo: databases.Mongod, viewer: ServedViewer) -> None:
    secret = token.split("_")[2]
    with pymongo.MongoClient[dict[str, object]](mongo.uri("runs")) as client:
        database = client.get_default_database()
        rows = [str(row) for name in database.list_collection_names() for row in database[name].find()]
    assert any(token.split("_")[1] in row for row in rows)
    assert not any(secret in row or PASSWORD in row for row in rows)
    assert secret not in (viewer.folder / "stderr").read_text()
