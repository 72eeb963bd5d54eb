"""Logs in S3, against a server that speaks its protocol: ranges of one version, and nothing but these."""

import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.logs import s3_source
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.bundles import sample_range
from control_tower.logs.s3_source import S3Source
from tests.logs.log_making import write_log
from tests.logs.test_logs_command import ct
from tests.logs.test_validate import both


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server of our own; what makes clients of its own finds the server in the environment."""
    server = os.environ.get("CT_S3_SERVER") or shutil.which("ministack")
    if server is None:
        pytest.skip("no S3 server: `pip install ministack`, or name its program in CT_S3_SERVER")
    import boto3

    port = free_port()
    folder = tmp_path_factory.mktemp("s3")
    surrounding = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    process = subprocess.Popen(
        [server],
        env={**os.environ, **surrounding},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    names = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = dict(os.environ)
    os.environ.update(names)
    try:
        session: Any = boto3.session.Session()
        client = session.client("s3")
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        client.create_bucket(Bucket="plain")
        client.create_bucket(Bucket="versions")
        client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        yield client
    finally:
        os.environ.clear()
        os.environ.update(before)
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def big_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 8 MiB that does not compress: eight samples."""
    header, *_ = both()
    noise = random.Random(1)
    samples = [
        {"id": f"s{n}", "epoch": 1, "input": "", "target": "", "text": noise.randbytes(512 * 1024).hex()}
        for n in range(16)
    ]
    return write_log(tmp_path_factory.mktemp("big") / "log.eval", header, samples)


class Counting:
    """A client that counts the bytes it was asked for."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.fetched = 0

    def head_object(self, **request: Any) -> Any:
        return self.client.head_object(**request)

    def get_object(self, **request: Any) -> Any:
        first, last = request["Range"].removeprefix("bytes=").split("-")
        self.fetched += int(last) - int(first) + 1
        return self.client.get_object(**request)


def test_header_summaries_and_one_sample_are_read_without_the_rest(store: Any, big_log: Path) -> None:
    store.upload_file(str(big_log), "plain", "a/log +#.eval")
    counting = Counting(store)
    source = S3Source("s3://plain/a/log +#.eval", counting)
    with EvalArchive.open(source) as remote, EvalArchive.open(big_log) as local:
        assert remote.header() == local.header()
        assert remote.summaries() == local.summaries()
        key = SampleKey("s3", 1)
        assert remote.sample(key) == local.sample(key)
        assert source.size > 8 * 1024**2
        assert counting.fetched <= 4 * s3_source.BLOCK
        found = sample_range(remote, key, stored_as="a/log +#.eval", e_tag=source.e_tag)
        assert found["eTag"] == store.head_object(Bucket="plain", Key="a/log +#.eval")["ETag"]


def test_an_object_that_was_replaced_is_refused(store: Any, big_log: Path) -> None:
    store.upload_file(str(big_log), "plain", "replaced.eval")
    with EvalArchive.open("s3://plain/replaced.eval") as archive:
        archive.header()
        data = bytearray(big_log.read_bytes())
        data[100] ^= 1
        store.put_object(Bucket="plain", Key="replaced.eval", Body=bytes(data))
        with pytest.raises(OperationError, match=r"s3://plain/replaced\.eval: changed while"):
            archive.sample(SampleKey("s1", 1))


def test_an_object_that_was_removed_is_an_error(store: Any, big_log: Path) -> None:
    store.upload_file(str(big_log), "plain", "removed.eval")
    with EvalArchive.open("s3://plain/removed.eval") as archive:
        store.delete_object(Bucket="plain", Key="removed.eval")
        with pytest.raises(StateError, match="there is no such object"):
            archive.sample(SampleKey("s1", 1))


def test_a_version_is_read_to_its_end_though_there_is_a_newer_one(store: Any, big_log: Path) -> None:
    store.upload_file(str(big_log), "versions", "log.eval")
    with EvalArchive.open("s3://versions/log.eval") as archive, EvalArchive.open(big_log) as local:
        source = archive.members.source
        assert isinstance(source, S3Source)
        store.put_object(Bucket="versions", Key="log.eval", Body=b"new")
        assert archive.sample(SampleKey("s1", 1)) == local.sample(SampleKey("s1", 1))
        with EvalArchive.open(f"s3://versions/log.eval?versionId={source.version_id}") as old:
            assert old.header() == local.header()


@pytest.mark.parametrize("address", ["s3://", "s3://plain", "s3://plain/"])
def test_addresses_of_no_object(address: str) -> None:
    with pytest.raises(ValidationError, match="is no address of an object"):
        EvalArchive.open(address)


@pytest.mark.parametrize("address", ["s3://plain/nothing.eval", "s3://nobucket/x.eval"])
def test_objects_that_are_not_there(store: Any, address: str) -> None:
    with pytest.raises(StateError, match="there is no such object"):
        EvalArchive.open(address)


def test_without_credentials_the_way_out_is_named(
    store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StateError, match="no AWS credentials; set AWS_PROFILE"):
        EvalArchive.open("s3://plain/x.eval")


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with pytest.raises(OperationError, match=r"s3://b/x\.eval: cannot be read"):
        EvalArchive.open("s3://b/x.eval")


def test_commands_read_logs_in_the_store(
    store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *samples = both()
    log = write_log(tmp_path / "log.eval", header, samples)
    store.upload_file(str(log), "plain", "log.eval")
    address = "s3://plain/log.eval"
    assert ct("info", address, "--format", "json") == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["log"], row["samples"], row["status"]) == (address, 2, "success")
    assert ct("validate", address) == 0
    assert ct("diff", address, str(log)) == 0
    assert ct("info", "s3://plain/none.eval") == 1
