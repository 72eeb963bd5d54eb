"""Blobs in S3: whatever is there is whole, and conditions keep what is there from being replaced."""

from __future__ import annotations

import base64
import random
import secrets
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import count, groupby
from typing import Any, BinaryIO

from botocore.exceptions import ClientError

from control_tower.errors import ExpectedError, OperationError, StateError, ValidationError
from control_tower.storage.blobs import PIECE, Blob, OtherPart, Part, PartMissing, Staged
from control_tower.storage.s3_object import GONE, REFUSED, SCHEME, S3Source, code_of, make_client, naming
from control_tower.storage.threaded import THREADS, Digests, ThreadedBlobs, Whole

SMALLEST_PART = 5 * 1024**2
"""Bytes that S3 wants in each part of an object but the last."""

LARGEST_SKEW = 600
"""Seconds that clocks may differ."""

_COPIES = 8
_CONFLICT = ("409", "ConditionalRequestConflict", "OperationAborted")
_TRIES = 6


class S3Blobs(ThreadedBlobs):
    """Objects at `<prefix>/sha256/ab/cd/<digest>.eval`, parts at `<prefix>/staged/<upload>/<number>`."""

    def __init__(self, address: str, client: Any = None) -> None:
        """Names the place; nothing is asked of it yet.

        Args:
            address: `s3://<bucket>` or `s3://<bucket>/<prefix>`.
            client: Of boto3; None makes one from the environment.

        Raises:
            ValidationError: The address names no bucket.
        """
        super().__init__()
        self._bucket, _, prefix = address.removeprefix(SCHEME).partition("/")
        if not address.startswith(SCHEME) or not self._bucket:
            raise ValidationError(f"{address}: names no bucket; write s3://<bucket>/<prefix>")
        self.address = address.rstrip("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._s3 = client or make_client(2 * THREADS)

    @property
    def bucket(self) -> str:
        return self._bucket

    def source(self, blob: Blob) -> S3Source:
        return S3Source(f"{SCHEME}{self._bucket}/{self._prefix}{blob.key}", self._s3, blob)

    @contextmanager
    def _errors(self) -> Generator[None]:
        with naming(self.address, "used", "bucket"):
            yield

    def _head(self, key: str) -> Blob | None:
        try:
            found = self._s3.head_object(**self._at(key))
        except ClientError as error:
            if code_of(error) in GONE:
                return None
            raise
        version = found.get("VersionId")
        modified = found["LastModified"].timestamp()
        return Blob(
            key, found["ContentLength"], found["ETag"], None if version == "null" else version, modified
        )

    def _pieces(self, key: str, start: int, length: int | None, pinned: Blob | None) -> Iterator[bytes]:
        blob = pinned or self._head(key)
        if blob is None:
            raise _gone(key)
        end = blob.size if length is None else start + length
        if not 0 <= start <= end <= blob.size:
            raise OperationError(f"{key}: has {blob.size} bytes, {start} to {end} are not in it")
        if start == end:
            return
        try:
            answer = self._s3.get_object(
                **self._at(key), Range=f"bytes={start}-{end - 1}", IfMatch=blob.e_tag
            )
        except ClientError as error:
            if code_of(error) in REFUSED:
                raise _changed(key) from None
            if code_of(error) in GONE:
                raise _gone(key) from None
            raise
        with answer["Body"] as body:
            if answer["ContentLength"] != end - start:
                raise OperationError(f"{self.address}: answers with other bytes than it was asked for")
            while piece := body.read(PIECE):
                yield piece

    @contextmanager
    def _spool(self, upload: str) -> Generator[BinaryIO]:
        with tempfile.TemporaryFile() as file:
            yield file

    def _keep_part(self, upload: str, number: int, file: BinaryIO, digests: Digests) -> None:
        place = self._at(_part_key(upload, number))
        md5 = base64.b64encode(bytes.fromhex(digests.md5)).decode()
        for wait in _waits():
            file.seek(0)
            try:
                self._s3.put_object(
                    **place, Body=file, ContentMD5=md5, Metadata={"sha256": digests.sha256}, IfNoneMatch="*"
                )
                return
            except ClientError as error:
                if code_of(error) in REFUSED:
                    break
                if code_of(error) not in _CONFLICT:
                    raise
            time.sleep(wait)
        try:
            there = self._s3.head_object(**place)
        except ClientError as error:
            if code_of(error) in GONE:
                # Another has completed the upload meanwhile.
                raise PartMissing("the parts of the upload are gone") from None
            raise
        if there["Metadata"].get("sha256") != digests.sha256:
            raise OtherPart(f"part {number}: another one of this number is there")

    def _parts(self, upload: str) -> dict[int, Part]:
        numbers = ((int(found["Key"].rsplit("/", 1)[-1]), found) for found in self._list(f"staged/{upload}/"))
        return {number: Part(number, found["Size"], found["ETag"]) for number, found in numbers}

    def _part_pieces(self, upload: str, part: Part) -> Iterator[bytes]:
        if not part.size:
            return
        answer = self._s3.get_object(**self._at(_part_key(upload, part.number)), IfMatch=part.e_tag)
        with answer["Body"] as body:
            while piece := body.read(PIECE):
                yield piece

    @contextmanager
    def _whole(self, upload: str, parts: list[Part]) -> Generator[Whole]:
        try:
            yield _Joined(self, upload, parts)
        except ClientError as error:
            if code_of(error) in (*GONE, *REFUSED):
                raise PartMissing("the parts of the upload are gone") from None
            raise

    def join(self, upload: str, parts: list[Part], key: str) -> bool:
        """Makes one object of parts; False when there is one."""
        if self._head(key):
            return False
        for wait in _waits():
            try:
                self._join_once(upload, parts, self._at(key))
                return True
            except ClientError as error:
                code = code_of(error)
                # Of an answer that was lost, the repetition says that the upload is no more.
                if (code in REFUSED or code == "NoSuchUpload") and self._head(key):
                    return False
                if code not in _CONFLICT:
                    raise
            time.sleep(wait)
        raise OperationError(f"{self.address}: others keep writing {key}; try again")

    def _join_once(self, upload: str, parts: list[Part], place: dict[str, Any]) -> None:
        place = {**place, "UploadId": self._s3.create_multipart_upload(**place)["UploadId"]}
        with ExitStack() as undoing:
            undoing.callback(self._drop, place)
            with ThreadPoolExecutor(_COPIES) as pool:
                done = list(pool.map(partial(self._add, upload, place), count(1), _groups(parts)))
            self._s3.complete_multipart_upload(**place, MultipartUpload={"Parts": done}, IfNoneMatch="*")
            undoing.pop_all()

    def _add(self, upload: str, place: dict[str, Any], number: int, group: list[Part]) -> dict[str, Any]:
        """Parts as one of S3's: a copy of one, several small ones by their bytes."""
        if len(group) == 1:
            source = {"Bucket": self._bucket, "Key": self._prefix + _part_key(upload, group[0].number)}
            copied = self._s3.upload_part_copy(
                **place, PartNumber=number, CopySource=source, CopySourceIfMatch=group[0].e_tag
            )
            return {"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]}
        data = b"".join(piece for part in group for piece in self._part_pieces(upload, part))
        sent = self._s3.upload_part(**place, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": sent["ETag"]}

    def _drop(self, place: dict[str, Any]) -> None:
        """Forgets an unfinished object; one that is finished is none."""
        try:
            self._s3.abort_multipart_upload(**place)
        except ClientError as error:
            if code_of(error) != "NoSuchUpload" and code_of(error) not in GONE:
                raise

    def _abandon(self, upload: str) -> None:
        with ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(self._delete, [_part_key(upload, number) for number in self._parts(upload)]))

    def _uploads(self) -> Iterator[Staged]:
        start = len(self._prefix)
        for upload, found in groupby(self._list("staged/"), lambda one: one["Key"][start:].split("/")[1]):
            parts = list(found)
            changed = max(part["LastModified"].timestamp() for part in parts)
            yield Staged(upload, sum(part["Size"] for part in parts), changed)

    def _blobs(self) -> Iterator[Blob]:
        for found in self._list("sha256/"):
            key, modified = found["Key"][len(self._prefix) :], found["LastModified"].timestamp()
            yield Blob(key, found["Size"], found["ETag"], None, modified)

    def _delete(self, key: str) -> None:
        self._s3.delete_object(**self._at(key))

    def _free(self) -> None:
        return None

    def _clean(self, before: float) -> int:
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}sha256/"
        )
        old = [
            {"Bucket": self._bucket, "Key": found["Key"], "UploadId": found["UploadId"]}
            for page in pages
            for found in page.get("Uploads", [])
            if found["Initiated"].timestamp() < before
        ]
        for place in old:
            self._drop(place)
        return len(old)

    def _check(self) -> list[str]:
        found: list[str] = []
        place = self._at(f"staged/probe{secrets.token_hex(8)}/1")
        try:
            with self._errors():
                answer = self._s3.put_object(**place, Body=b"probe", IfNoneMatch="*")
                server = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
                skew = round(time.time() - server)
                if abs(skew) > LARGEST_SKEW:
                    found.append(f"{self.address}: this machine's clock differs by {skew} s; set the clock")
                if self._replaces(place):
                    found.append(f"{self.address}: ignores If-None-Match, so that logs could be replaced")
                self._s3.delete_object(**place)
        except ExpectedError as error:
            found.append(f"{error}; logs cannot be kept there")
        return found

    def _replaces(self, place: dict[str, Any]) -> bool:
        try:
            self._s3.put_object(**place, Body=b"again", IfNoneMatch="*")
        except ClientError as error:
            if code_of(error) in REFUSED:
                return False
            raise
        return True

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _list(self, below: str) -> Iterator[dict[str, Any]]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + below
        )
        for page in pages:
            yield from page.get("Contents", [])


class _Joined:
    """An object in the making, whose bytes are those of its parts."""

    def __init__(self, blobs: S3Blobs, upload: str, parts: list[Part]) -> None:
        self._blobs = blobs
        self._upload = upload
        self._parts = parts

    def write(self, data: bytes) -> None:
        """They are in the store."""

    def commit(self, key: str) -> bool:
        return self._blobs.join(self._upload, self._parts, key)


def _part_key(upload: str, number: int) -> str:
    return f"staged/{upload}/{number:05}"


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    """Parts in their order, together where one is too small for S3."""
    group: list[Part] = []
    for part in parts:
        group.append(part)
        if sum(one.size for one in group) >= SMALLEST_PART:
            yield group
            group = []
    if group:
        yield group


def _waits() -> Iterator[float]:
    """Seconds between tries."""
    for number in range(_TRIES):
        yield random.uniform(0.5, 1) * 0.1 * 2**number


def _gone(key: str) -> StateError:
    return StateError(f"{key}: there is no such object")


def _changed(key: str) -> StateError:
    return StateError(f"{key}: is no longer the object that was looked at; try again")
