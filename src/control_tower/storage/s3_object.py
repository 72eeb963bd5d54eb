"""An object in S3 read by ranges, all of them of the version that was there when it was opened."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.storage.blobs import Blob

SCHEME = "s3://"

BLOCK = 1024 * 1024
"""Bytes asked for at once, so that many small reads are few requests."""

_BLOCKS_KEPT = 8
_VERSION_QUERY = "?versionId="
GONE = ("404", "NoSuchKey", "NoSuchBucket", "NoSuchVersion")
REFUSED = ("412", "PreconditionFailed")
_DENIED = ("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")


class S3Source:
    """One version of an object.

    Where the store keeps versions, it is read as it was opened though a newer one has come; elsewhere an
    object that was replaced is refused.
    """

    def __init__(self, address: str, client: Any = None, known: Blob | None = None) -> None:
        """Looks the object up.

        Args:
            address: `s3://<bucket>/<key>`, and `?versionId=<id>` for a version that is not the latest.
            client: Of boto3; None makes one from the environment, as the AWS command line would.
            known: What was found before: it is not looked up again, and another object is refused when read.

        Raises:
            ValidationError: The address names no object.
            StateError: There is no such object, or there are no credentials.
            OperationError: It cannot be reached or may not be read.
        """
        self.name = address
        self._pin = _object_of(address)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        with naming(address):
            self._client = client or make_client()
            head = _head_of(known) if known else self._client.head_object(**self._pin)
        self.e_tag: str = head["ETag"]
        """As the store gives it, with its quotes."""
        self.version_id: str | None = head.get("VersionId")
        """None where the store keeps no versions."""
        if self.version_id not in (None, "null"):
            self._pin["VersionId"] = self.version_id
        self._size = int(head["ContentLength"])

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`.

        Raises:
            OperationError: The object was replaced since it was opened, or could not be read.
        """
        if offset < 0 or offset + length > self._size:
            raise OperationError(f"{self.name}: {length} bytes at {offset} are outside of it")
        end = offset + length
        parts: list[bytes] = []
        for start in range(offset // BLOCK * BLOCK, end, BLOCK):
            block = self._block(start)
            parts.append(block[max(offset - start, 0) : end - start])
        return b"".join(parts)

    def close(self) -> None:
        """Forgets what was read."""
        self._blocks.clear()

    def _block(self, start: int) -> bytes:
        if start in self._blocks:
            self._blocks.move_to_end(start)
            return self._blocks[start]
        last = min(start + BLOCK, self._size) - 1
        with naming(self.name):
            answer = self._client.get_object(**self._pin, Range=f"bytes={start}-{last}", IfMatch=self.e_tag)
            # A store that knows no ranges answers with everything.
            before = 0 if "ContentRange" in answer else start
            with answer["Body"] as body:
                data: bytes = body.read(before + last + 1 - start)[before:]
        if len(data) != last + 1 - start or answer["ETag"] != self.e_tag:
            raise OperationError(f"{self.name}: changed while it was being read; try again")
        self._blocks[start] = data
        if len(self._blocks) > _BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return data


def _object_of(address: str) -> dict[str, Any]:
    place, _, version = address.removeprefix(SCHEME).partition(_VERSION_QUERY)
    bucket, _, key = place.partition("/")
    if not address.startswith(SCHEME) or not bucket or not key:
        raise ValidationError(f"{address}: is no address of an object; write s3://<bucket>/<key>")
    found = {"Bucket": bucket, "Key": key}
    return {**found, "VersionId": version} if version else found


def _head_of(known: Blob) -> dict[str, Any]:
    return {"ETag": known.e_tag, "VersionId": known.version_id, "ContentLength": known.size}


def make_client(connections: int = 10) -> Any:
    """A client that finds region and credentials as the AWS command line does.

    Args:
        connections: How many requests may be under way at once.
    """
    boto3: Any = import_module("boto3")
    config: Any = import_module("botocore.config")
    chosen = config.Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "max_attempts": 4},
        signature_version="s3v4",
        s3={"addressing_style": "path"} if _elsewhere() else None,
        max_pool_connections=connections,
        # Other stores than AWS's know no checksums behind the body.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client("s3", config=chosen)


def _elsewhere() -> bool:
    """Whether it is another store than AWS's, whose buckets have no host names."""
    return any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))


def code_of(error: Any) -> str:
    """What a ClientError of the store says: a name, or a status where there is no body."""
    return str(error.response.get("Error", {}).get("Code"))


@contextmanager
def naming(address: str, done: str = "read", what: str = "object") -> Generator[None]:
    """What the store says against it as an error that names the object.

    Args:
        address: Of the object.
        done: What was to be done with it, a participle.
        what: It is.
    """
    exceptions: Any = import_module("botocore.exceptions")
    try:
        yield
    except exceptions.ClientError as error:
        code = code_of(error)
        if code in GONE:
            raise StateError(f"{address}: there is no such {what}") from None
        if code in REFUSED:
            raise OperationError(f"{address}: changed while it was being read; try again") from None
        if code in _DENIED:
            raise OperationError(
                f"{address}: may not be {done} with these AWS credentials ({code})"
            ) from None
        said = error.response.get("Error", {}).get("Message") or code
        raise OperationError(f"{address}: cannot be {done}: {said}") from error
    except exceptions.NoCredentialsError:
        raise StateError(
            f"{address}: there are no AWS credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY"
        ) from None
    except (exceptions.BotoCoreError, OSError) as error:
        raise OperationError(f"{address}: cannot be {done}: {error}") from error
