"""Logs in S3, read through AWS's client: ranges of one version, and nothing but these.

The store is a stub of ours over loopback, and a whole S3 server where there is one.
"""

import hashlib
import json
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import boto3
import pytest

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.bundles import sample_range
from control_tower.storage import s3_object
from control_tower.storage.s3_object import S3Source
from tests.logs.log_making import write_log
from tests.logs.test_logs_command import ct
from tests.logs.test_validate import both
from tests.support import s3_stub
from tests.support.ports import free_port
from tests.support.s3_server import CREDENTIALS


class Store(Protocol):
    """Objects by `<bucket>/<key>`; the bucket `versions` keeps the older ones."""

    address: str

    def put(self, place: str, data: bytes) -> None: ...

    def delete(self, place: str) -> None: ...


@pytest.fixture(scope="module", params=["stub", pytest.param("server", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store, which clients find in the environment."""
    before = dict(os.environ)
    try:
        with ExitStack() as opened:
            if request.param == "stub":
                found: Store = opened.enter_context(s3_stub.serving())
            else:
                found = request.getfixturevalue("s3_server")
            os.environ |= {**CREDENTIALS, "AWS_ENDPOINT_URL": found.address}
            yield found
    finally:
        os.environ.clear()
        os.environ.update(before)


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


def test_header_summaries_and_one_sample_are_read_without_the_rest(store: Store, big_log: Path) -> None:
    store.put("plain/a/log +#.eval", big_log.read_bytes())
    counting = Counting(boto3.client("s3"))
    source = S3Source("s3://plain/a/log +#.eval", counting)
    with EvalArchive.open(source) as remote, EvalArchive.open(big_log) as local:
        assert remote.header() == local.header()
        assert remote.summaries() == local.summaries()
        key = SampleKey("s3", 1)
        assert remote.sample(key) == local.sample(key)
        assert source.size > 8 * 1024**2
        assert counting.fetched <= 4 * s3_object.BLOCK
        found = sample_range(remote, key, stored_as="a/log +#.eval", e_tag=source.e_tag)
        assert found["eTag"] == f'"{hashlib.md5(big_log.read_bytes()).hexdigest()}"'


def test_an_object_that_was_replaced_is_refused(store: Store, big_log: Path) -> None:
    store.put("plain/replaced.eval", big_log.read_bytes())
    with EvalArchive.open("s3://plain/replaced.eval") as archive:
        archive.header()
        data = bytearray(big_log.read_bytes())
        data[100] ^= 1
        store.put("plain/replaced.eval", bytes(data))
        with pytest.raises(OperationError, match=r"s3://plain/replaced\.eval: changed while"):
            archive.sample(SampleKey("s1", 1))


def test_an_object_that_was_removed_is_an_error(store: Store, big_log: Path) -> None:
    store.put("plain/removed.eval", big_log.read_bytes())
    with EvalArchive.open("s3://plain/removed.eval") as archive:
        store.delete("plain/removed.eval")
        with pytest.raises(StateError, match="there is no such object"):
            archive.sample(SampleKey("s1", 1))


def test_a_version_is_read_to_its_end_though_there_is_a_newer_one(store: Store, big_log: Path) -> None:
    store.put("versions/log.eval", big_log.read_bytes())
    with EvalArchive.open("s3://versions/log.eval") as archive, EvalArchive.open(big_log) as local:
        source = archive.members.source
        assert isinstance(source, S3Source)
        store.put("versions/log.eval", b"new")
        assert archive.sample(SampleKey("s1", 1)) == local.sample(SampleKey("s1", 1))
        with EvalArchive.open(f"s3://versions/log.eval?versionId={source.version_id}") as old:
            assert old.header() == local.header()


@pytest.mark.parametrize("address", ["s3://", "s3://plain", "s3://plain/"])
def test_addresses_of_no_object(address: str) -> None:
    with pytest.raises(ValidationError, match="is no address of an object"):
        EvalArchive.open(address)


@pytest.mark.parametrize("address", ["s3://plain/nothing.eval", "s3://nobucket/x.eval"])
def test_objects_that_are_not_there(store: Store, address: str) -> None:
    with pytest.raises(StateError, match="there is no such object"):
        EvalArchive.open(address)


def test_without_credentials_the_way_out_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *samples = both()
    log = write_log(tmp_path / "log.eval", header, samples)
    store.put("plain/log.eval", log.read_bytes())
    address = "s3://plain/log.eval"
    assert ct("info", address, "--format", "json") == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["log"], row["samples"], row["status"]) == (address, 2, "success")
    assert ct("validate", address) == 0
    assert ct("diff", address, str(log)) == 0
    assert ct("info", "s3://plain/none.eval") == 1
