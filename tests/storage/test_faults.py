"""What blob stores say and leave when something fails: a full disk, a store that differs, a lost answer."""

import errno
import os
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from control_tower.errors import OperationError, StateError
from control_tower.storage.blobs import OutOfSpace, blob_key
from control_tower.storage.directory import DirectoryBlobs
from control_tower.storage.s3 import S3Blobs
from tests.storage.opened import Opened, keep, send, sha256, stream, whole
from tests.support.ports import free_port
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.anyio


class Between:
    """A client whose calls of one name go through a function first."""

    def __init__(self, client: Any, name: str, call: Callable[..., Any]) -> None:
        self._client = client
        self._name = name
        self._call = call

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._client, name)
        if name != self._name:
            return inner
        return lambda **request: self._call(inner, **request)


def refusal(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "operation")


def blobs_between(client: Any, name: str, call: Callable[..., Any]) -> S3Blobs:
    return S3Blobs(f"s3://plain/{os.urandom(6).hex()}", Between(client, name, call))


@pytest.mark.parametrize("failing", ["fsync", "link", "open", "mkdir"])
async def test_a_full_disk_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    store = Opened("directory", str(tmp_path), DirectoryBlobs(tmp_path), None)
    old = await keep(store.blobs, b"old")
    await send(store.blobs, "u2", b"be", b"fore")
    before = store.everything()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(OutOfSpace, match="no room left on the disk"):
            await store.blobs.put_part("u3", 1, stream(b"new"), sha256=None, size=None)
        with pytest.raises(OutOfSpace, match="no room left on the disk"):
            await store.blobs.assemble("u2")
    assert store.everything() == before
    assert (await store.blobs.assemble("u2")).existing is False
    assert await whole(store.blobs, old.blob.key) == b"old"


async def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blobs = DirectoryBlobs(tmp_path / "file")
    [line] = await blobs.check()
    assert "file" in line and "logs cannot be kept there" in line
    with pytest.raises(OperationError):
        await blobs.put_part("u1", 1, stream(b"x"), sha256=None, size=None)


async def test_a_store_that_replaces_objects_is_found(s3_client: Any) -> None:
    def ignoring(inner: Any, **request: Any) -> Any:
        request.pop("IfNoneMatch", None)
        return inner(**request)

    [line] = await blobs_between(s3_client, "put_object", ignoring).check()
    assert "ignores If-None-Match" in line


@pytest.mark.parametrize(("askew", "said"), [(-750, True), (-500, False), (500, False), (750, True)])
async def test_clocks_may_differ_by_ten_minutes(s3_client: Any, askew: int, said: bool) -> None:
    def dated(inner: Any, **request: Any) -> Any:
        answer = inner(**request)
        answer["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(time.time() - askew, usegmt=True)
        return answer

    lines = await blobs_between(s3_client, "put_object", dated).check()
    assert [("clock differs" in line, f"{int(askew / 100)}" in line) for line in lines] == [
        (True, True)
    ] * said


async def test_a_bucket_that_is_not_there_is_found(s3_client: Any) -> None:
    blobs = S3Blobs("s3://nothing/x", s3_client)
    assert await blobs.check() == ["s3://nothing/x: there is no such bucket; logs cannot be kept there"]
    with pytest.raises(StateError, match="there is no such bucket"):
        await blobs.put_part("u1", 1, stream(b"x"), sha256=None, size=None)


@pytest.mark.slow
async def test_a_store_that_does_not_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    [line] = await S3Blobs("s3://b/x").check()
    assert line.startswith("s3://b/x: cannot be used: ")


@pytest.mark.parametrize("name", ["put_object", "complete_multipart_upload"])
async def test_a_write_in_conflict_is_tried_again(s3_client: Any, name: str) -> None:
    conflicts = 2

    def at_first(inner: Any, **request: Any) -> Any:
        nonlocal conflicts
        if conflicts:
            conflicts -= 1
            raise refusal("ConditionalRequestConflict", 409)
        return inner(**request)

    blobs = blobs_between(s3_client, name, at_first)
    made = await keep(blobs, b"data")
    assert (conflicts, made.existing, made.sha256) == (0, False, sha256(b"data"))
    assert await whole(blobs, made.blob.key) == b"data"


async def test_a_commit_whose_answer_was_lost_has_happened(s3_client: Any, s3_server: S3Server) -> None:
    def lost(inner: Any, **request: Any) -> Any:
        inner(**request)
        # The client's own second try.
        return inner(**request)

    blobs = blobs_between(s3_client, "complete_multipart_upload", lost)
    made = await keep(blobs, b"data")
    assert made.sha256 == sha256(b"data")
    assert await whole(blobs, made.blob.key) == b"data"


async def test_a_failed_commit_leaves_no_unfinished_object(s3_client: Any) -> None:
    def denied(inner: Any, **request: Any) -> Any:
        raise refusal("AccessDenied", 403)

    blobs = blobs_between(s3_client, "complete_multipart_upload", denied)
    await send(blobs, "u1", b"data")
    with pytest.raises(OperationError, match="may not be used with these AWS credentials"):
        await blobs.assemble("u1")
    assert await blobs.head(blob_key(sha256(b"data"))) is None
    assert await blobs.clean(time.time() + 3600) == 0
    assert list(await blobs.parts("u1")) == [1]


async def test_a_part_replaced_behind_our_back_is_not_committed(s3_client: Any, s3_server: S3Server) -> None:
    def late(inner: Any, **request: Any) -> Any:
        source = request["CopySource"]
        s3_server.put(f"{source['Bucket']}/{source['Key']}", b"other")
        return inner(**request)

    blobs = blobs_between(s3_client, "upload_part_copy", late)
    await send(blobs, "u1", b"data")
    with pytest.raises(StateError):
        await blobs.assemble("u1")
    assert [blob async for blob in blobs.blobs()] == []
